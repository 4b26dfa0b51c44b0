#!/usr/bin/env bash
# ci/gpu-check on the double of CUDA, with what it has packed of a build; what that needs beside itself
# comes with a compiler.
# usage: on_double_test.sh SOURCE-FOLDER BUILD-FOLDER
set -euo pipefail
out=$2/gpu-check-out
mkdir -p "$out"
"$1/ci/gpu-check" --double --build "$2" --out "$out" --pack "$out/packed.tar.gz"
"$1/ci/gpu-check" --double --out "$out" --packed "$out/packed.tar.gz"
if LD_LIBRARY_PATH=$out/packed/lib ldd "$out"/packed/bin/{moeperf-train,mpirun,test_*} "$out"/packed/mpi/*.so |
    grep '=>' | grep -vE "$out/packed/lib/|lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)\.so"; then
    echo "a machine with CUDA alone may lack these" >&2
    exit 1
fi
