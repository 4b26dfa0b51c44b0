# shellcheck shell=bash
# What the scripts of this folder share; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)

# Open MPI refuses root unless told twice; containers are root.
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# A script ends with its own first comment if --help is asked for.
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    esac
done

# Results of a script that checks things; total prints them.
passed=0 failed=0 skipped=0

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

# is_available PACKAGE: whether Debian or Ubuntu has it for this machine.
is_available() {
    [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]
}

# build PRESET TARGET...: configures and builds, everything if no target is named.
build() {
    local preset=$1 start=$SECONDS
    shift
    (cd "$root" && cmake --preset "$preset" >"build/$preset.log" 2>&1) || {
        cat "$root/build/$preset.log" >&2
        return 1
    }
    cmake --build "$root/build/$preset" --parallel "$cores" ${1:+--target "$@"} || return 1
    say "built $preset${1:+: $*} in $((SECONDS - start)) s"
}

# The last line of ci/test, ci/lint and .ci/run; the exit status says whether anything failed.
total() {
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" -eq 0 ]
}
