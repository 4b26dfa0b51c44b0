#!/usr/bin/env bash
# baselines/README.md and reference/gate/README.md, followed in a copy of the sources: the skeleton
# and a gate under a new name build, are listed, pass their tests, and train as plain expert
# parallelism and the softmax gate do.  Then the system copies experts and does not declare it: its
# tests and a run say what is missing.
#
#   new_system_test.sh SOURCES BUILD CMAKE ARGUMENT...    what is built there already; how to configure
set -euo pipefail
export LC_ALL=C

sources=$1 built=$2
shift 2
readonly sources built cmake=("$@")
readonly name=copy2
work=$(mktemp -d)
readonly work
trap 'rm -rf "$work"' EXIT

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# block FIRST [PAGE]: the indented block of the page (baselines/README.md) whose first line begins so,
# for the system or gate $name.
block() {
    local page=${2:-baselines/README.md}
    awk -v first="    $1" '
        /^    / {
            if (!inside) wanted = index($0, first) == 1
            inside = 1
            if (wanted) print substr($0, 5)
            next
        }
        { inside = 0 }' "$page" | sed "s/\bmine\b/$name/g" | grep . ||
        die "$page has no block that begins with \"$1\""
}

copy_sources() {
    local entry
    mkdir "$work/sources"
    for entry in "$sources"/*; do
        case ${entry##*/} in
        build | out) ;;
        *) cp -rp "$entry" "$work/sources" ;;
        esac
    done
    cd "$work/sources"
}

# commands BUILD SOURCES: how each object is compiled there, in words that two builds share.
commands() {
    sed -n 's/^ *"command": "\(.*\)",*$/\1/p' "$1/compile_commands.json" |
        sed "s|$work/compile ||; s|$1|BUILD|g; s|$2|SOURCES|g" | sort
}

# unchanged: the objects in $built that are newer than all files of the copy that they were made from.
unchanged() {
    {
        find . -type f -printf '%T@ %P\n'
        ninja -C "$built" -t deps
    } | awk -v sources="$sources/" '
        /^[0-9]/ { time[substr($0, index($0, " ") + 1)] = $1; next }
        / \(VALID\)$/ { object = substr($1, 1, length($1) - 1); made = $(NF - 1) / 1e9; keep = 1; next }
        /^ / {
            file = substr($0, 5)
            if (index(file, sources) == 1) file = substr(file, length(sources) + 1)
            else if (file ~ /^\//) next # no part of moeperf
            while (sub(/^\.\.\//, "", file));
            if (!(file in time) || time[file] + 0 >= made) keep = 0
            next
        }
        { if (object != "" && keep) print object; object = "" }' | sort
}

# or_log COMMAND...: prints what it said if it fails.
or_log() {
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log"
        die "the copy does not build"
    }
}

# What the pages leave alone need not be compiled again: an object that was made by the same command
# from the same files is put in the place of its compilation.
configure() {
    local launcher
    launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=/;/p' "$built/CMakeCache.txt")
    cat >"$work/compile" <<END
#!/bin/sh
for word; do
    case \$last in
    -o) object=\$word ;;
    -MF) depends=\$word ;;
    esac
    last=\$word
done
mv "$work/objects/\$object" "\$object" 2>/dev/null || exec "\$@"
echo "\$object:" >"\$depends"
END
    chmod +x "$work/compile"
    mkdir "$work/objects"
    or_log "${cmake[@]}" -S . -B "$work/build" "-DCMAKE_C_COMPILER_LAUNCHER=$work/compile$launcher"
    comm -12 <(commands "$built" "$sources") <(commands "$work/build" "$PWD") |
        sed -n '/-D[^ ]*SOURCES/d; s/.* -o \(.*\) -c .*/\1/p' | sort | comm -12 - <(unchanged) |
        (cd "$built" && xargs -r cp --parents -t "$work/objects")
    printf '%d objects are taken from %s\n' "$(find "$work/objects" -type f | wc -l)" "$built"
}

build() {
    or_log "${cmake[0]}" --build "$work/build" --parallel 2 \
        --target moeperf moeperf-train test_baselines_systems test_baselines_random_plans \
        "test_baselines_${name}_$name" test_reference_gate_gate test_golden_pytorch
}

# value KEY: the values of a key in $work/report.json, one a line.
value() {
    sed -n "s/^ *\"$1\": \(.*[^,]\),*\$/\1/p" "$work/report.json"
}

# compare PAGE: moeperf run on the page's suite; losses of both jobs must be equal to the last digit.
compare() {
    block "suite: " "$1" >"$work/suite.yaml"
    cat reference/*/*.h >"$work/text"
    moeperf run "$work/suite.yaml" --db "$work/results.db" --text "$work/text" --json --quiet \
        --set check-plans=yes --set iterations=5 --set sequence=32 >"$work/report.json"
    local loss
    mapfile -t loss < <(value loss_final)
    printf 'complete: %s; final losses: %s\n' "$(value complete)" "${loss[*]}"
    [ "$(value complete) $(value failed)" = "2 0" ] || die "not every job is complete"
    [[ ${#loss[@]} -eq 2 && ${loss[0]} =~ ^[0-9]+\.[0-9]+$ ]] || die "there are no two losses"
    [ "${loss[0]}" = "${loss[1]}" ] || die "the losses differ"
}

# refused WHAT COMMAND...: it fails, and says which system, which capability and where it goes.
refused() {
    local what=$1
    shift
    if "$@" >"$work/refused" 2>&1; then
        die "$what takes copies that are not declared"
    fi
    grep "system $name: .*MP_SYSTEM_REPLICATES to .capabilities.* mp_system_$name" \
        "$work/refused" || {
        cat "$work/refused"
        die "$what does not say that copies have to be declared"
    }
}

# The hook copies expert 0, and its descriptor stays as it is.
copy_undeclared() {
    local call='plan->topology.ranks == 1 ? MP_OK : mp_plan_add_copy(plan, 0, plan->topology.ranks'
    call+=' - 1, MP_STAGE_BEFORE_GATE, error)'
    sed -i "s|return MP_OK; /\* nothing to copy \*/|return $call;|" "baselines/$name/$name.c"
    grep -qF "return $call;" "baselines/$name/$name.c" || die "the hook is not as it was"
    build
    refused "its own test" "test_baselines_${name}_$name"
    refused "the test of all systems" test_baselines_random_plans $name
    refused "moeperf run" moeperf run "$work/suite.yaml" --db "$work/refused.db" \
        --text "$work/text" --set check-plans=yes --set iterations=1 --set sequence=32
}

copy_sources
readonly gates=reference/gate/README.md
for page in baselines/README.md $gates; do
    block name= "$page" >"$work/commands"
    bash -eu "$work/commands"
done
# What make_golden.py would write, which needs PyTorch: the gate is still the softmax.
cp tests/golden/softmax.bin tests/golden/$name.bin
configure
build
PATH=$work/build/bin:$PATH
"test_baselines_${name}_$name"
test_baselines_systems
test_baselines_random_plans $name
moeperf list systems | tee "$work/list"
grep -q "^$name " "$work/list" || die "$name is not listed"
moeperf show $name >"$work/show"
grep -q "^    which experts a rank owns" "$work/show" || die "moeperf show lacks the options"
moeperf list gates | tee "$work/list"
grep -q "^$name " "$work/list" || die "gate $name is not listed"
test_reference_gate_gate
test_golden_pytorch "*$name*"
compare $gates
compare baselines/README.md
copy_undeclared
