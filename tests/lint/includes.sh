#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# includes.sh: checks which folder may include which, as ARCHITECTURE.md says. Called by make lint.
set -eu
cd "$(dirname "$0")/../.."

# folder: the folders whose headers it may use, besides its own
declare -A allowed=(
    [core/base]=''
    [core/boot]='core/base'
    [core/transport]='core/base core/boot'
    [core/coll]='core/base core/transport'
    [core/p2p]='core/base core/transport'
    [core/backend]='core/backend/kernels core/base core/coll core/transport'
    [core/backend/kernels]=''
    [core/negotiate]='core/base'
    [core/engine]='core/base core/boot core/transport core/coll core/p2p core/backend core/negotiate'
    [core/json]='core/base'
    [core/http]='core/base'
    [core/member]='core/base core/http core/json'
    [agent]='core/backend core/base core/json core/member diagnostics diagnostics/report'
    [operator]='core/base core/json core/member operator/api operator/coordinator operator/driver operator/link operator/metrics operator/objects operator/page operator/reconcile'
    [operator/api]='core/base core/http core/json operator/objects'
    [operator/coordinator]='core/base core/json core/member operator/link operator/objects'
    [operator/driver]='core/base core/json operator/api operator/metrics operator/objects operator/reconcile'
    [operator/link]='core/base core/json core/member operator/objects'
    [operator/metrics]='core/base'
    [operator/objects]='core/base core/json'
    [operator/page]='core/base core/json operator/driver operator/link operator/metrics operator/objects'
    [operator/reconcile]='core/base core/json operator/objects'
    [diagnostics]='core/base core/json'
    [diagnostics/checks]='core/base diagnostics'
    [diagnostics/probes]='core/base core/json core/member diagnostics'
    [diagnostics/report]='core/base core/json diagnostics'
    [diagnostics/workers]='core/base diagnostics'
    [diagnostics/cli]='core/base core/json core/member diagnostics diagnostics/report diagnostics/workers'
    [diagnostics/prober]='core/base'
    [examples]=''
    [images/bundle]='core/base'
)
# header of a foreign library: the only folders whose files may include it
declare -A foreign=(
    [jansson.h]='core/json core/member agent operator operator/api operator/coordinator operator/driver operator/link operator/objects operator/page operator/reconcile diagnostics diagnostics/report diagnostics/cli'
    [curl/]='core/http'
    [microhttpd.h]='core/member agent operator operator/metrics diagnostics/cli'
    [gnutls/]='core/member agent operator'
    [yaml.h]='agent operator/api'
    [sodium.h]='core/base core/json core/boot core/transport core/member agent operator operator/api operator/coordinator operator/driver operator/link diagnostics/probes'
    [hwloc]='agent diagnostics images/bundle'
    [pmix.h]='core/boot'
)
bad=0

complain() {
    echo "$1:$2: $3" >&2
    bad=1
}

in_list() {
    local word
    for word in $2; do
        [ "$word" = "$1" ] && return 0
    done
    return 1
}

check_ours() {
    local file=$1 line=$2 header=$3 folder=$4 target
    case $header in
    hvd.h | hvd_messages.h | hvd_sets.h | core/include/hvd.h)
        case $folder in
        core/base | core/json | core/member) complain "$file" "$line" "$folder does not know hvd.h" ;;
        esac
        return
        ;;
    esac
    target=$(dirname "$header")
    [ -f "$header" ] || complain "$file" "$line" "\"$header\" is not a path from the root"
    [ "$target" = "$folder" ] && return
    in_list "$target" "${allowed[$folder]}" ||
        complain "$file" "$line" "$folder may not include $target (ARCHITECTURE.md, layers)"
}

check_foreign() {
    local file=$1 line=$2 header=$3 folder=$4 lib
    for lib in "${!foreign[@]}"; do
        case $header in
        "$lib"*)
            in_list "$folder" "${foreign[$lib]}" ||
                complain "$file" "$line" "$folder may not use <$header>"
            ;;
        esac
    done
}

while IFS=: read -r file line text; do
    folder=$(dirname "$file")
    if [ -z "${allowed[$folder]+known}" ]; then
        complain "$file" "$line" "tests/lint/includes.sh does not know the folder $folder"
        continue
    fi
    case $text in
    *\"*\"*)
        header=${text#*\"}
        check_ours "$file" "$line" "${header%%\"*}" "$folder"
        ;;
    *\<*\>*)
        header=${text#*<}
        check_foreign "$file" "$line" "${header%%>*}" "$folder"
        ;;
    esac
done < <(git ls-files 'core/*.[ch]' 'agent/*.[ch]' 'operator/*.[ch]' 'diagnostics/*.[ch]' \
    'examples/*.[ch]' 'images/*.[ch]' | grep -v '^core/include/' | xargs -r grep -nH '^ *# *include')

# The roster's layers (core/member/README.md): each file uses only those before it, and no part of the roster uses any.
layers=(replace leave life arrivals world epoch target rebuild)
parts=(private members agents ends starts changes next work notes text)
above=
for ((i = ${#layers[@]} - 1; i >= 0; i--)); do
    above="$above ${layers[i]}"
    for name in "${layers[i]}" $([ "$i" -eq 0 ] && echo "${parts[@]}"); do
        for other in $above; do
            [ "$other" = "$name" ] && continue
            grep -ns "\"core/member/roster_$other.h\"" "core/member/roster_$name".[ch] >&2 || continue
            echo "roster_$name may not use roster_$other (core/member/README.md, The roster)" >&2
            bad=1
        done
    done
done

# Only one file calls curl, for all programs.
n=$(git ls-files 'core/*.c' 'agent/*.c' 'operator/*.c' 'diagnostics/*.c' | xargs -r grep -l '<curl/' | wc -l)
if [ "$n" -gt 1 ]; then
    echo "$n files include curl, core/http/http.c alone may" >&2
    bad=1
fi

# Within agent/ includes point one way, too: no module includes one that includes it. (The files of module x share
# x_private.h.)
circle=$(git ls-files 'agent/*.[ch]' | grep -v _private | xargs -r grep -oH '^#include "agent/[a-z_]*' |
    sed 's/^agent\///; s/\.[ch]:#include "agent\// /' | grep -v _private | awk '$1 != $2' |
    tsort 2>&1 >/dev/null | sed 's/^tsort: \(-: input contains a loop:\)\?//' | tr '\n' ' ') || true
if [ -n "$circle" ]; then
    echo "files of agent/ include each other in a circle: $circle" >&2
    bad=1
fi

# cmocka is installed only by `make check` and `make test`. `make all` must build without it, so no header may include it and
# no program that `all` builds (benchmarks, examples) may use it. The Makefile finds the harness files that do.
while IFS=: read -r file line text; do
    case $file in
    tests/unit/* | tests/multi/* | tests/gpu/test_*.c | tests/harness/*.c) ;;
    *) complain "$file" "$line" 'only a test, or a .c file of tests/harness, may include cmocka.h' ;;
    esac
    [ "$text" = '#include <cmocka.h>' ] ||
        complain "$file" "$line" 'the Makefile looks for the line "#include <cmocka.h>", exactly'
done < <(git ls-files '*.[ch]' | xargs -r grep -nH '^ *# *include.*cmocka')

exit $bad
