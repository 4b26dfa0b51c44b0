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

# What CTest says, of which one test has not come to its end: every result, and why others failed.
cat >"$work/bin/cmake" <<END
#!/bin/sh
case \$* in *-P*) exec $(command -v cmake) "\$@" ;; esac
END
cat >"$work/bin/ctest" <<'END'
#!/bin/sh
case $* in *-N*) echo 'Total Tests: 6' && exit ;; esac
cat <<'LINES'
      Start 1: gpu/one
 1/6 Test #1: gpu/one ..........................   Passed    0.25 sec
 2/6 Test  #2: gpu/absent ......................***Skipped   0.01 sec
skipped: no GPU of that kind
 3/6 Test  #3: gpu/wrong .......................***Failed    1.50 sec
[ RUN      ] fine
[       OK ] fine
[  ERROR   ] --- out[3] is 41, expected 42
 4/6 Test #14: gpu/slow ........................***Timeout  60.02 sec
 5/6 Test #15: gpu/wild ........................Subprocess aborted***Exception:   0.52 sec
LINES
END
chmod +x "$work/bin/cmake" "$work/bin/ctest"
expect 1 env PATH="$work/bin:$PATH" "$source/ci/gpu-check" --double --build "$work/build" --out "$work/out.d"
tab=$'\t'
for line in "gpu/one${tab}0.25${tab}s${tab}to pass${tab}pass" \
    "gpu/absent${tab}0.01${tab}s${tab}to pass${tab}skip" \
    "gpu/wrong${tab}1.50${tab}s${tab}to pass${tab}fail" \
    "gpu/slow${tab}60.02${tab}s${tab}to pass${tab}fail" \
    "gpu/wild${tab}0.52${tab}s${tab}to pass${tab}fail"; do
    grep -qxF "test $line" "$work/out.d/results.tsv" || fail "no $line: $(cat "$work/out.d/results.tsv")"
done
grep -q "^all tests${tab}5 of 6 came to an end" "$work/out.d/results.tsv" || fail "the sixth is not missed"
for reason in 'out[3] is 41, expected 42' Timeout Exception; do
    grep -qF "    $reason" <(sed 's/\[  ERROR   \] --- //' "$work/out.d/summary.txt") ||
        fail "no reason $reason: $(cat "$work/out.d/summary.txt")"
done
if grep -q 'RUN\|no GPU of that kind' "$work/out.d/reasons.txt"; then
    fail "more than reasons: $(cat "$work/out.d/reasons.txt")"
fi
