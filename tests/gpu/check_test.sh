#!/usr/bin/env bash
# ci/gpu-check itself: what it says of itself and where it can't check anything; what it makes of
# what a machine with a GPU would answer is seen with --double.
# usage: check_test.sh SOURCE-FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# expect STATUS COMMAND...: its output in $work/out and $work/err.
expect() {
    local wanted=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq "$wanted" ] || fail "$* ended with status $status instead of $wanted: $(cat "$work/err")"
}

expect 0 "$source/ci/gpu-check" --help
grep -q '^usage: ci/gpu-check' "$work/out" || fail "--help names no usage"
expect 2 "$source/ci/gpu-check" --fast
grep -q 'unknown option --fast' "$work/err" || fail "an unknown option is not named"
expect 2 "$source/ci/gpu-check" --out
grep -q -- '--out needs a folder' "$work/err" || fail "a missing folder is not named"

# A machine without a GPU: one sentence, and nothing is built.
mkdir "$work/bin"
printf '#!/bin/sh\necho "No devices were found"\nexit 6\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
expect 2 env PATH="$work/bin:$PATH" "$source/ci/gpu-check" --build "$work/build" --out "$work/out.d"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than a sentence: $(cat "$work/err")"
grep -q 'there is no NVIDIA GPU' "$work/err" || fail "it does not say that there is no GPU"
[ ! -e "$work/build" ] || fail "something was built without a GPU"

# Results as JSON: text with quotes and backslashes, numbers, empty fields.
printf 'test a\t0.1\ts\tto pass\tpass\nbuild\tsee "x\\y"\t\twarn, less\tfail\n' >"$work/lines"
expect 0 cmake -DRESULTS="$work/lines" -DOUTPUT="$work/result.json" -DGPU='a "GPU"' -DREVISION=1a \
    -DPASSED=1 -DFAILED=1 -DSKIPPED=0 -DSECONDS=3 -P "$source/ci/gpu-result.cmake"
cat >"$work/read.cmake" <<'END'
cmake_minimum_required(VERSION 3.22)
file(READ ${RESULT} document)
string(JSON count LENGTH "${document}" checks)
string(JSON number TYPE "${document}" checks 0 value)
string(JSON text GET "${document}" checks 1 value)
string(JSON unit GET "${document}" checks 1 unit)
string(JSON status GET "${document}" checks 1 status)
string(JSON gpu GET "${document}" gpu)
string(JSON failed GET "${document}" failed)
message(STATUS "${count} ${number} ${text} <${unit}> ${status} ${gpu} ${failed}")
END
expect 0 cmake -DRESULT="$work/result.json" -P "$work/read.cmake"
grep -qF -- '-- 2 NUMBER see "x\y" <> fail a "GPU" 1' "$work/out" || fail "result.json: $(cat "$work/out")"
