#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/digits.c on 1, 2, 3 and 4 ranks: the same losses to 1e-4, and an accuracy of 0.9 or more.
# timeout: 600
# takes: 40 s
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
PY=${PY:-/usr/bin/python3}
export HVD_LOG_LEVEL=warn

if ! "$PY" -c 'import sklearn' 2>/dev/null; then
    echo "SKIP: e2e/test_digits: python3-sklearn: $PY cannot import it"
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

"$PY" examples/digits_export.py "$dir/digits.csv" || exit 1
timeout 200 "$BUILD/examples/digits" "$dir/digits.csv" >"$dir/alone" || exit 1
for n in 1 2 3 4; do
    timeout -k 5 200 "$PY" tests/python/ranks.py -t 190 "$n" "$BUILD/examples/digits" "$dir/digits.csv" |
        sed 's/^\[0\] //' >"$dir/$n"
    [ "${PIPESTATUS[0]}" -eq 0 ] || { cat "$dir/$n" && exit 1; }
done
if [ -x "$BUILD/hvdrun" ]; then
    timeout -k 5 200 "$BUILD/hvdrun" -np 4 "$BUILD/examples/digits" "$dir/digits.csv" |
        sed 's/^\[0\]<stdout>://' >"$dir/hvdrun"
    [ "${PIPESTATUS[0]}" -eq 0 ] || { cat "$dir/hvdrun" && exit 1; }
else
    echo "SKIP: e2e/test_digits/hvdrun: hvdrun: it is not built"
fi

for file in "$dir"/[1-4] "$dir"/hvdrun; do
    [ -e "$file" ] || continue
    awk -v what="$(basename "$file")" '
        $1 == "step" && FILENAME == ARGV[1] { want[$2] = $4; steps++ }
        $1 == "step" && FILENAME != ARGV[1] {
            seen++
            d = $4 - want[$2]
            if (d > 1e-4 || d < -1e-4) { print what ": step " $2 ": loss " $4 ", alone " want[$2]; bad = 1 }
        }
        $1 == "accuracy" && FILENAME != ARGV[1] { accuracy = $2 }
        END {
            if (seen != steps || accuracy < 0.9) { print what ": " seen " of " steps " steps, accuracy " accuracy; bad = 1 }
            if (!bad) print "ok digits, " what ": accuracy " accuracy
            exit bad
        }' "$dir/alone" "$file" || exit 1
done

for bad in "" "$dir/nothing" /dev/null; do
    "$BUILD/examples/digits" "$bad" 2>/dev/null
    [ $? -eq 2 ] || { echo "digits $bad: not refused" && exit 1; }
done
echo "ok digits, bad files"
