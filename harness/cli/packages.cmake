# What a package has beside the programs, and the packages: `cpack --config BUILD/CPackConfig.cmake`, or
# ci/package, which tries them as well.

install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/completion/moeperf DESTINATION share/bash-completion/completions)
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/completion/_moeperf DESTINATION share/zsh/site-functions)

# Pages for man, of what the programs say of themselves.
find_program(MOEPERF_HELP2MAN help2man)
if(MOEPERF_HELP2MAN)
  install(CODE "execute_process(
    COMMAND \"${CMAKE_CURRENT_SOURCE_DIR}/manual.sh\" \"${MOEPERF_HELP2MAN}\" \"$<TARGET_FILE:moeperf>\"
            \"$<TARGET_FILE:moeperf-train>\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1\"
    COMMAND_ERROR_IS_FATAL ANY)")
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_VENDOR "The developers of moeperf")
set(CPACK_PACKAGE_CONTACT "The developers of moeperf <developers@moeperf.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "stragglers of Mixture-of-Experts training: measured, explained, predicted")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Libraries are found by what the programs link; mpirun starts ranks, moeperf-text prepares their text.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libjs-vega, coinor-libcbc3 | coinor-libcbc3.1, sqlite3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "fortunes-min, bible-kjv, chromium")
include(CPack)
