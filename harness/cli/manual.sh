#!/bin/sh
# Pages for man, made by help2man from what the programs say of themselves.
#
# usage: manual.sh HELP2MAN MOEPERF TRAINER FOLDER
#
# FOLDER gets moeperf.1, a moeperf-COMMAND.1 for each command, and moeperf-train.1.
set -eu

help2man=$1 moeperf=$2 trainer=$3 folder=$4
version=$("$moeperf" --version)
# A day of the revision, so that the same sources give the same pages.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"

page() { # NAME SUMMARY COMMAND: help2man knows no command of two words
    title=$(printf %s "$1" | tr '[:lower:]' '[:upper:]')
    "$help2man" --no-info --version-string "$version" --name "$2" "$3" |
        sed "s/^\.TH [^ ]* /.TH $title /; s/^moeperf\(-train\)\{0,1\} \\\\- /$1 \\\\- /" >"$folder/$1.1"
}

mkdir -p "$folder"
page moeperf 'measures and explains where time goes when Mixture-of-Experts models are trained' "$moeperf"
page moeperf-train 'trains one job, as a rank' "$trainer"
"$moeperf" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1 \2/p' |
    while read -r command summary; do
        page "moeperf-$command" "$summary" "$moeperf $command"
    done
