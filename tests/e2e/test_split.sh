#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/split.c, a model split over ranks by sets, on 2, 3, 4 and 6 ranks: the losses of one rank, to one part in 1,000.
# timeout: 120
# takes: 2 s
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

timeout 60 "$BUILD/examples/split" >"$dir/alone" || exit 1
for n in 2 3 4 6; do
    timeout -k 5 60 "$BUILD/hvdrun" -np "$n" --no-prefix --doctor=off "$BUILD/examples/split" >"$dir/$n" || exit 1
    awk -v what="$n ranks" '
        NR == FNR { want[$2] = $4; steps++; next }
        {
            seen++
            d = $4 - want[$2]
            if (d < 0) d = -d
            if (d > 1e-6 + 1e-3 * want[$2]) { print what ": step " $2 " loss " $4 ", alone " want[$2]; bad = 1 }
        }
        END {
            if (seen != steps || steps < 5) { print what ": " seen " of " steps " lines"; bad = 1 }
            if (!bad) print "ok split, " what
            exit bad
        }' "$dir/alone" "$dir/$n" || exit 1
done
