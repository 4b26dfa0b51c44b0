#!/usr/bin/env bash
# The golden losses of tests/golden/gpu beside what the cpu back end computes today: they would be
# of no use if only GPUs could tell that they are old.
# usage: losses_test.sh MOEPERF-TRAIN
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../../ci/losses.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for golden in "$root"/tests/golden/gpu/*.txt; do
    golden_losses "$golden" >"$work/golden"
    train_losses "$1" "$golden" >"$work/today"
    difference=$(largest_difference "$work/golden" "$work/today" 1000000 1)
    say "$(basename "$golden"): $difference"
    # Another processor's order of sums may show in the sixth digit.
    if at_most "$difference" 1e-5; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
total
