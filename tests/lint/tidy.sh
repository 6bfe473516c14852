#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tidy.sh BUILD FLAGS...: clang-tidy over the C sources. A file is checked again only if it, a header
# of ours that it includes, the checks or the flags have changed. A file without findings leaves its checksum as the name
# of an empty file in ~/.cache/hvd/tidy, for a month.
set -u
build=$1
shift
cd "$(dirname "$0")/../.." || exit 1
log=$build/tidy
out=${XDG_CACHE_HOME:-$HOME/.cache}/hvd/tidy
# How many states the analyzer follows in a function. A third of its default takes a third of the time.
nodes='--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=75000'
version=$(clang-tidy --version)
mkdir -p "$out" "$log" && find "$out" -type f -mtime +30 -delete
sources=()
mapfile -t sources < <(git ls-files 'core/*.c' 'agent/*.c' 'operator/*.c' 'diagnostics/*.c' 'examples/*.c' 'images/*.c')
[ ${#sources[@]} -gt 0 ] || exit 0

one() {
    local file=$1 sum said
    shift
    [ -f "$file" ] || return 0
    said=$log/${file//\//_}.log
    sum=$({
        echo "$* $extra $nodes $version"
        cat .clang-tidy
        # shellcheck disable=SC2086
        clang -std=gnu11 "$@" $extra -MM "$file" | tr ' ' '\n' | grep '^[a-z].*[.][ch]$' |
            xargs cat
    } | sha256sum | cut -d ' ' -f 1)
    [ -e "$out/$sum" ] && touch "$out/$sum" && return 0
    # shellcheck disable=SC2086
    if clang-tidy --quiet $nodes "$file" -- -std=gnu11 "$@" $extra >"$said" 2>&1; then
        : >"$out/$sum"
        rm -f "$said"
    else
        grep -v '^[0-9]* warnings\? ' "$said"
        return 1
    fi
}

# The kernels are compiled for several processors.
run() {
    extra=''
    case $1 in
    *_avx2.c) extra='-mavx2 -mf16c' ;;
    *_avx512.c) extra='-mavx2 -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq' ;;
    esac
    one "$@"
}
export -f one run
export out log nodes version
printf '%s\0' "${sources[@]}" | xargs -0 -P "${JOBS:-2}" -I{} bash -c 'run "$@"' run {} "$@"
