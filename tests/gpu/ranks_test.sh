#!/usr/bin/env bash
# Several ranks on GPUs, over MPI (memory of GPUs through the host) and over NCCL: the losses of one
# rank on a CPU, for systems that copy, move and slice experts; and over NCCL, of exchanges in chunks,
# the experts that come over MPI, to the last bit.
# usage: ranks_test.sh SOURCE-FOLDER BIN-FOLDER TRANSPORT RANKS [SYSTEM...]
# Of all systems, or of those that are named.  MOEPERF_CUDA_LIBRARY and MOEPERF_NCCL_LIBRARY say on
# what; over MPI ranks share GPUs where there are fewer.
set -euo pipefail
readonly source=$1 bin=$2 transport=$3 ranks=$4 iterations=5 tolerance=1e-5
shift 4
readonly systems=" $* "
checked=''
export MOEPERF_DOUBLE_DELAY=${MOEPERF_DOUBLE_DELAY:-200}
# NCCL wants a GPU for each rank; the double of CUDA has as many as are asked for.
if [ "$transport" = nccl ]; then export MOEPERF_DOUBLE_DEVICES=$ranks; fi
cd "$source"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

golden=tests/golden/gpu/gate.txt
settings=()
while read -r setting; do settings+=(--set "$setting"); done < <(sed -n 's/^set //p' $golden)
sed -n 's/^loss //p' $golden | head -n $iterations >"$work/expected"

wanted() {
    [[ $systems =~ ^\ *$ || $systems == *" $1 "* ]] && checked=yes
}

# run TRANSPORT NAME OPTION...: a system with these options.
run() {
    local by=$1 name=$2 options=() option
    shift 2
    for option in "$@"; do options+=(--set "$option"); done
    mpirun -n "$ranks" "$bin/moeperf-train" "${settings[@]}" --set "iterations=$iterations" \
        --set "system=$name" --set "ranks=$ranks" --set device=cuda --set "transport=$by" \
        --set check-plans=yes "${options[@]}" --progress >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        echo "$name: moeperf-train failed" >&2
        exit 1
    }
}

# check NAME OPTION...: its losses.
check() {
    if ! wanted "$1"; then return; fi
    run "$transport" "$@"
    awk '$1 == "progress" { print $2, $4 }' "$work/out" >"$work/actual"
    awk -v name="$1" -v tolerance=$tolerance '
        FNR == NR { expected[$1] = $2; count++; next }
        { difference = $2 - expected[$1]; if (difference < 0) difference = -difference
          if (difference > largest) largest = difference; compared++ }
        END {
            printf "%s: %d losses, largest difference %.2g\n", name, compared, largest
            exit compared != count || largest > tolerance
        }' "$work/expected" "$work/actual"
}

# chunks NAME OPTION...: the same over MPI; over NCCL experts with the bits of MPI, after an iteration:
# in the next one non-expert parameters have been summed in another order.
chunks() {
    local by rank
    if ! wanted "$1"; then return; fi
    if [ "$transport" = mpi ]; then
        check "$@"
        return
    fi
    for by in mpi nccl; do
        run "$by" "$@" iterations=1 "checkpoint=$work/$by"
    done
    for ((rank = 0; rank < ranks; rank++)); do
        cmp "$work"/{mpi,nccl}/experts-000$rank.bin || exit 1
    done
    echo "$*: the experts that come over MPI"
    rm -r "$work"/{mpi,nccl}
}

check fssdp
check flexmoe options.interval=2
check ep
# Sends copies ahead, and makes late ones of copies.
check nodewise nodes=2 options.cover=4 options.ahead=2 options.rematerialise=no options.even=no
check deepspeed options.drop-tokens=no options.zero=1 options.expert-parallel=1 \
    options.offload-optimizer=yes
chunks ep exchange-degree=2
chunks fssdp exchange=leader nodes=2 exchange-degree=4
chunks ep exchange=two-level nodes=2 exchange-degree=8
chunks deepep nodes=2 exchange-degree=4
chunks llep exchange=deduplicated exchange-degree=2 options.smallest-gemm=1
# Not of every number of ranks, hence set in: ci/gpu-check takes the systems from the lines above.
if [ "$ranks" -ge 4 ]; then
    check hiermoe nodes=2 options.hierarchy=4:2 options.depth=3 # in three rounds
    chunks hiermoe options.hierarchy=4:2 options.depth=3 exchange-degree=2
fi
if [ "$transport" = nccl ]; then
    # What the transport is asked for as by those above.
    check deepep nodes=2
    check fssdp gather=broadcasts
fi
[ -n "$checked" ] || {
    echo "nothing here checks $systems on $ranks ranks" >&2
    exit 1
}
