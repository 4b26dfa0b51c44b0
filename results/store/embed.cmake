# Writes OUTPUT: C source that defines `const char NAME[]` with the bytes of the file INPUT and a
# terminating zero, declared in HEADER.  Bytes instead of a string literal: no length limit.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n${bytes}0x00};\n")
