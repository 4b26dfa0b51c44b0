# shellcheck shell=bash
# Losses of training beside those that the cpu back end has once had; sourced, not run.
#
# Files of tests/golden/gpu: lines "set KEY=VALUE", the options of a job for one rank, and
# "loss ITERATION LOSS"; lines that begin with # are for people.  Paths are relative to the root.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

golden_losses() {
    sed -n 's/^loss //p' "$1"
}

# train_losses PROGRAM GOLDEN KEY=VALUE...: trains the golden file's job, with other options
# besides, and prints "ITERATION LOSS" of each iteration.
train_losses() {
    local program=$1 golden=$2 setting settings=()
    shift 2
    while read -r setting; do
        settings+=(--set "$setting")
    done < <(sed -n 's/^set //p' "$golden")
    for setting in "$@"; do
        settings+=(--set "$setting")
    done
    (cd "$root" && "$program" "${settings[@]}" --progress) | awk '$1 == "progress" { print $2, $4 }'
}

# largest_difference EXPECTED ACTUAL LIMIT SCALE: between two files, of the first LIMIT losses,
# relative to the larger of SCALE and the expected one; "none" if one is missing or no number.
largest_difference() {
    awk -v limit="$3" -v scale="$4" '
        FNR == NR { if (++expected_count <= limit) expected[$1] = $2; next }
        $1 in expected {
            difference = $2 - expected[$1]
            if (difference < 0) difference = -difference
            size = expected[$1] > scale ? expected[$1] : scale
            if ($2 !~ /^[0-9.]+(e[-+]?[0-9]+)?$/) wild = 1
            if (difference / size > largest) largest = difference / size
            compared++
        }
        END {
            if (expected_count < limit) limit = expected_count
            if (wild || !compared || compared < limit) print "none"
            else printf "%.3g\n", largest
        }' "$1" "$2"
}

# at_most DIFFERENCE TOLERANCE
at_most() {
    awk -v difference="$1" -v tolerance="$2" \
        'BEGIN { exit !(difference != "none" && difference + 0 <= tolerance + 0) }'
}
