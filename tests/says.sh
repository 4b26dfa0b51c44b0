#!/bin/sh
# says.sh PATTERN COMMAND...: the command ends well and prints a line like this (grep -E).  CTest's
# own PASS_REGULAR_EXPRESSION would not look at the status.
pattern=$1
shift
said=$("$@") || { status=$?; printf '%s\nexit status %d\n' "$said" "$status"; exit 1; }
printf '%s\n' "$said"
printf '%s\n' "$said" | grep -qE "$pattern" || { echo "no line has $pattern"; exit 1; }
