#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank is killed, stopped, or runs out of descriptors: the others end in time, or wait and name the rank, and nothing is
# left.
# timeout: 900
# takes: 20 s, waiting
# shellcheck disable=SC2317,SC2154  # functions that check calls; what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
LOOP=$BUILD/tests/programs/loop

# pid_of RANK FILE: waits until that rank has printed that it is ready. The background command that writes FILE may not
# have opened it yet, so FILE is emptied before, lest a line of an earlier run is found.
pid_of() {
    wait_until 30 pid_said "$@"
}

pid_said() { sed -n "s/.*rank $1 pid \([0-9]*\) ready.*/\1/p" "$2" | grep .; }

# start SIZE COMMAND...: ranks by hand, output of rank R in $TMP/out.R; pids in ${ranks[@]}
start() {
    local size=$1 r
    shift
    ranks=()
    export HVD_SIZE=$size HVD_RENDEZVOUS
    HVD_RENDEZVOUS=127.0.0.1:$(free_port)
    for ((r = 0; r < size; r++)); do
        : >"$TMP/out.$r"
        HVD_RANK=$r timeout 60 "$@" >"$TMP/out.$r" 2>&1 &
        ranks+=($!)
    done
}

# killed_by_hand VICTIM [NAME=VALUE]...: the other ranks must name the lost one, in less than two seconds
killed_by_hand() (
    victim=$1
    shift
    start 3 env "$@" "$LOOP" 1048576 30
    for r in 0 1 2; do
        pid=$(pid_of "$r" "$TMP/out.$r") || exit 1
        [ "$r" = "$victim" ] && target=$pid
    done
    sleep 0.3 # until the ranks are in the middle of sums
    begin=$EPOCHREALTIME
    kill -KILL "$target"
    for r in 0 1 2; do
        [ "$r" = "$victim" ] && continue
        wait "${ranks[r]}"
        [ $? -eq 3 ] || { echo "rank $r did not end with 3"; cat "$TMP/out.$r"; exit 1; }
        grep -q "rank $victim" "$TMP/out.$r" || { cat "$TMP/out.$r"; exit 1; }
    done
    took=$(since_ms "$begin")
    echo "ended after $took ms"
    [ "$took" -lt 2000 ]
)

killed_under_hvdrun() (
    : >"$TMP/run"
    timeout 60 "$BUILD/hvdrun" -np 3 "$LOOP" 1048576 30 >"$TMP/run" 2>&1 &
    run=$!
    target=$(pid_of 1 "$TMP/run") && sleep 0.3 || exit 1
    begin=$EPOCHREALTIME
    kill -KILL "$target"
    wait "$run"
    rc=$?
    took=$(since_ms "$begin")
    cat "$TMP/run"
    echo "exit code $rc after $took ms"
    [ "$rc" -eq 137 ] && [ "$took" -lt 5000 ] && grep -q 'rank 1.*SIGKILL' "$TMP/run"
)

stopped() (
    : >"$TMP/run"
    HVD_STALL_CHECK_TIME_SECONDS=1 timeout 60 "$BUILD/hvdrun" -np 3 "$LOOP" 65536 10 >"$TMP/run" 2>&1 &
    run=$!
    target=$(pid_of 2 "$TMP/run") && sleep 0.5 || exit 1
    kill -STOP "$target"
    wait_until 60 grep -q 'missing rank.*2' "$TMP/run"
    kill -CONT "$target"
    wait "$run"
    rc=$?
    cat "$TMP/run"
    [ "$rc" -eq 0 ] && grep -q 'missing rank.*2' "$TMP/run"
)

# Rank 1 may open only a few descriptors: it joins, or says what it lacks, and no rank hangs or crashes.
few_descriptors() (
    export HVD_SIZE=2 HVD_RENDEZVOUS HVD_START_TIMEOUT=4
    refused=0
    for limit in 5 7 11 13 30; do
        HVD_RENDEZVOUS=127.0.0.1:$(free_port)
        HVD_RANK=0 timeout 60 "$BUILD/tests/programs/sum" >"$TMP/out.0" 2>&1 &
        (ulimit -n "$limit" && HVD_RANK=1 timeout 60 "$BUILD/tests/programs/sum") >"$TMP/out.1" 2>&1
        rc=$?
        wait $!
        rc0=$?
        echo "limit $limit: $rc $rc0 $(cat "$TMP/out.0" "$TMP/out.1")"
        [ "$rc" -eq "$rc0" ] && [ "$rc" -le 1 ] || exit 1
        [ "$rc" -eq 1 ] && { grep -q 'ulimit -n' "$TMP/out.1" || exit 1; }
        refused=$((refused + rc))
    done
    [ "$refused" -gt 0 ] && [ "$rc" -eq 0 ]
)

check 'rank 1 of 3 killed, one host' at_best killed_by_hand 1
check 'rank 0 of 3 killed, one host' at_best killed_by_hand 0
check 'rank 2 of 3 killed, hosts of one rank (TCP)' at_best killed_by_hand 2 sh -c "HVD_LOCALITY=\$HVD_RANK exec \"\$@\"" sh
check 'rank 0 of 3 killed, hosts of one rank (TCP)' at_best killed_by_hand 0 sh -c "HVD_LOCALITY=\$HVD_RANK exec \"\$@\"" sh
check 'a rank killed under hvdrun is named' at_best killed_under_hvdrun
check 'a stopped rank is named, the job goes on when it wakes' stopped
check 'too few descriptors' few_descriptors
exit "$failed"
