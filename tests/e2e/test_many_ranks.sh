#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The most ranks that a host may run, on few cores: they start, sum and end, even if other processes keep the machine
# busy.
# timeout: 400
# takes: 20 s
# shellcheck disable=SC2154,SC2317,SC2086  # common.sh; functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
[ -x "$SUM" ] || { echo "no $SUM"; exit 1; }

# many SECONDS: 512 ranks must end within that time
many() {
    local begin=$SECONDS
    timeout "$1" "$RUN" -np 512 --no-prefix "$SUM" >"$TMP/1" 2>"$TMP/2" || {
        echo "exit code $?"
        head -n 20 "$TMP/2"
        return 1
    }
    echo "512 ranks took $((SECONDS - begin)) s" >&3
    head -n 20 "$TMP/2"
    [ "$(sort -u "$TMP/1" | grep -c '^rank [0-9]* of 512 on host 0 of 1: sum ok$')" -eq 512 ] && [ ! -s "$TMP/2" ] &&
        nothing_left
}

# beside_loops: the same beside four processes that never sleep, and beside other tests. The 30 s that ranks wait for each
# other by default may be too short there.
beside_loops() {
    local loops=() rc=0
    for _ in 1 2 3 4; do
        (exec sh -c 'while :; do :; done') &
        loops+=($!)
    done
    HVD_START_TIMEOUT=120 many 120 || rc=$?
    kill "${loops[@]}"
    wait "${loops[@]}" 2>/dev/null
    return $rc
}

exec 3>&1
check idle many 60
check busy beside_loops
exit $failed
