#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sizes.sh: no C file over 500 lines (tests: 650, for their tables), no function over 100, an SPDX line
# in every source. Called by make lint. Functions are told by clang-format's layout: "{" and "}" alone in the first column.
set -eu
cd "$(dirname "$0")/../.."
bad=0

while IFS= read -r file; do
    [ -f "$file" ] || continue
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
        echo "$file: no SPDX line" >&2
        bad=1
    }
done < <(git ls-files '*.c' '*.h' '*.sh' '*.py' .ci/run)

while IFS= read -r file; do
    [ -f "$file" ] || continue
    limit=500
    [[ $file == tests/* ]] && limit=650
    awk -v file="$file" -v limit="$limit" '
        /^\{/ { start = FNR; name = before }
        /^\}/ && start {
            if (FNR - start + 1 > 100) {
                printf "%s:%d: %d lines in a function, at most 100: %s\n", file, start, FNR - start + 1, name
                bad = 1
            }
            start = 0
        }
        { if ($0 != "") before = $0 }
        END {
            if (FNR > limit) { printf "%s: %d lines, at most %d\n", file, FNR, limit; bad = 1 }
            exit bad
        }' "$file" >&2 || bad=1
done < <(git ls-files '*.c' '*.h')
exit $bad
