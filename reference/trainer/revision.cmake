# Writes OUTPUT from INPUT with the revision of SOURCE as it is now; unchanged contents keep their
# time, so that nothing is compiled again.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE MP_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT MP_REVISION)
  set(MP_REVISION "unknown")
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
