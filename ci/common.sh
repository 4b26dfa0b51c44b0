# shellcheck shell=bash
# What the scripts of this folder share; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)

# Open MPI refuses root unless told twice; containers are root.
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

# build PRESET TARGET...: configures and builds; says how long it took.
build() {
    local preset=$1 start=$SECONDS
    shift
    cmake -S "$root" --preset "$preset" -Wno-dev >"$root/build/$preset.configure.log" 2>&1 || {
        cat "$root/build/$preset.configure.log" >&2
        return 1
    }
    cmake --build "$root/build/$preset" --parallel "$cores" ${1:+--target "$@"}
    say "built $preset${1:+: $*} in $((SECONDS - start)) s"
}
