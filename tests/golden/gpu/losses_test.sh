#!/usr/bin/env bash
# The golden losses of tests/golden/gpu beside what the cpu back end computes today.
# usage: losses_test.sh [--write] PROGRAM
#   --write  puts today's losses into the files instead of comparing
#   PROGRAM  moeperf-train of a build with the cpu back end
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../../ci/common.sh"
source "$root/ci/losses.sh"

write=''
if [ "$1" = --write ]; then
    write=yes
    shift
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Another processor's order of sums may show in the sixth digit that is printed.
for golden in "$root"/tests/golden/gpu/*.txt; do
    train_losses "$1" "$golden" >"$work/today"
    if [ -n "$write" ]; then
        sed -i '/^loss /d' "$golden"
        sed 's/^/loss /' "$work/today" >>"$golden"
        continue
    fi
    golden_losses "$golden" >"$work/golden"
    difference=$(largest_difference "$work/golden" "$work/today" 1000000 1)
    say "$(basename "$golden"): $difference"
    if at_most "$difference" 1e-5; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ -n "$write" ] || total
