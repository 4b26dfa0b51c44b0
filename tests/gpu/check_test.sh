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
grep -q -- '--out needs a value' "$work/err" || fail "a missing folder is not named"
expect 2 "$source/ci/gpu-check" --only training,rank
grep -q 'training,rank: parts are tests, ' "$work/err" || fail "an unknown part is not named"

# A machine without a GPU: one sentence, and nothing is built.
mkdir "$work/bin"
printf '#!/bin/sh\necho "No devices were found"\nexit 6\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
expect 2 env PATH="$work/bin:$PATH" "$source/ci/gpu-check" --build "$work/build" --out "$work/out.d"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than a sentence: $(cat "$work/err")"
grep -q 'there is no NVIDIA GPU' "$work/err" || fail "it does not say that there is no GPU"
[ ! -e "$work/build" ] || fail "something was built without a GPU"

# What was packed, of which a test passes but for a case, one fails and one dies: each result, and why.
mkdir -p "$work/packed/bin"
echo 1a2b3c >"$work/packed/revision"
echo 13.0 >"$work/packed/toolkit"
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/packed/bin/$1"
    chmod +x "$work/packed/bin/$1"
}
program test_reference_device_gemm 'echo "skipped: no GPU of that kind"'
program test_reference_device_rows 'echo "[ RUN      ] fine"; echo "[  ERROR   ] --- out[3] is 41"; exit 1'
program test_gpu_collectors 'kill -ABRT $$'
tar -C "$work/packed" -czf "$work/packed.tar.gz" .
expect 1 "$source/ci/gpu-check" --double --packed "$work/packed.tar.gz" --build "$work/build" --out "$work/out.d"
tab=$'\t'
for line in "test_reference_device_gemm, a case${tab}no GPU of that kind${tab}${tab}to pass${tab}skip" \
    "test_reference_device_rows${tab}status 1${tab}${tab}to pass${tab}fail" \
    "test_gpu_collectors${tab}status 134${tab}${tab}to pass${tab}fail" \
    "flexmoe on 2 ranks${tab}status *${tab}fail" \
    "training step${tab}*${tab}${tab}to run${tab}fail" "benchmarks${tab}*${tab}fail"; do
    grep -qx "${line//\*/.*}" "$work/out.d/results.tsv" || fail "no $line: $(cat "$work/out.d/results.tsv")"
done
grep -qx "test_reference_device_gemm${tab}[0-9]*${tab}s${tab}to pass${tab}pass" "$work/out.d/results.tsv" ||
    fail "what passes does not pass"
grep -qF -- '--- out[3] is 41' "$work/out.d/summary.txt" || fail "no reason: $(cat "$work/out.d/summary.txt")"
! grep -q RUN "$work/out.d/reasons.txt" || fail "more than reasons: $(cat "$work/out.d/reasons.txt")"
grep -q 'the double of CUDA, revision 1a2b3c$' "$work/out.d/summary.txt" || fail "not the revision that was packed"
[ ! -e "$work/build/CMakeCache.txt" ] || fail "something was built"

# PyTorch's step: that there is none, why there is none, and beside ours.
mkdir "$work/python"
program moeperf-train 'echo "rate 40.000 1.0 2.0"'
tar -C "$work/packed" -czf "$work/packed.tar.gz" .
pytorch() {
    cat >"$work/python/python3" <<END
#!/bin/sh
[ "\$1" = -c ] && exit $1
echo "\$*" >"$work/python/options"
$2
END
    chmod +x "$work/python/python3"
    expect 1 env PATH="$work/python:$PATH" "$source/ci/gpu-check" --double --only step,pytorch \
        --packed "$work/packed.tar.gz" --build "$work/build" --out "$work/out.d"
    grep -qx "$3" "$work/out.d/results.tsv" || fail "no $3: $(cat "$work/out.d/results.tsv")"
}
pytorch 1 '' "PyTorch's step${tab}no PyTorch${tab}${tab}to run${tab}skip"
pytorch 0 'echo "no room" >&2; exit 1' "PyTorch's step${tab}no room${tab}${tab}to run${tab}skip"
pytorch 0 'echo "{\"ms_per_iteration\": 90.0, \"tflop_per_s\": 3.5}"' \
    "training step, as fast as PyTorch's${tab}2.250${tab}times${tab}-${tab}info"
grep -q 'step.py --device cpu --gate=gshard --routing=balanced ' "$work/python/options" || fail "other options"

# The step with nothing to compare itself with: everything else that it says.
expect 1 "$source/ci/gpu-check" --double --only step --packed "$work/packed.tar.gz" --build "$work/build" --out "$work/alone.d"
for line in "share of a product${tab}no rate of a product${tab}.*${tab}skip" "its phases${tab}.*${tab}fail"; do
    grep -qx "training step, $line" "$work/alone.d/results.tsv" || fail "no $line: $(cat "$work/alone.d/results.tsv")"
done

# On a GPU, as far as its tools say: every system on any number of ranks, whose losses are right.
printf '#!/bin/sh\necho "NVIDIA H200, 9.0"\n' >"$work/bin/nvidia-smi"
cat >"$work/bin/mpirun" <<END
#!/bin/sh
for option; do case \$option in iterations=*) iterations=\${option#*=} ;; esac; done
sed -n 's/^loss \([0-9]*\) /progress \1 of /p' "$source/tests/golden/gpu/gate.txt" | head -n \$iterations
cat # what is not for it to read
END
chmod +x "$work/bin/mpirun"
expect 0 env PATH="$work/bin:$PATH" "$source/ci/gpu-check" --only ranks --packed "$work/packed.tar.gz" --build "$work/build" --out "$work/out.d"
for line in "nodewise on 2 ranks${tab}0${tab}${tab}the CPU's losses${tab}pass" "driver_version${tab}.*${tab}info"; do
    grep -qx "$line" "$work/out.d/results.tsv" || fail "no $line: $(cat "$work/out.d/results.tsv")"
done
grep -q '^14 passed, 0 failed, 0 skipped$' "$work/out" || fail "not seven systems: $(cat "$work/out.d/results.tsv")"

# Without mpirun there are no ranks, and it says so.
ln -s /usr/bin/* /bin/* "$work/bin" 2>/dev/null || true
rm -f "$work/bin/mpirun"
expect 0 env PATH="$work/bin" "$source/ci/gpu-check" --double --only ranks --packed "$work/packed.tar.gz" --build "$work/build" --out "$work/out.d"
grep -q "^ranks${tab}there is no mpirun" "$work/out.d/results.tsv" || fail "no reason why there are no ranks"
grep -q '^0 passed, 0 failed, 1 skipped$' "$work/out" || fail "more than ranks: $(cat "$work/out")"
