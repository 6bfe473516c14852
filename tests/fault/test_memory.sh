#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A container's small /dev/shm does not matter: with 64 KiB of it, or none, ranks of one host still share memory, under
# hvdrun and by hand.
# timeout: 600
# takes: 6 s, waiting
# shellcheck disable=SC2317,SC2154  # functions that check calls; what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
LOOP=$BUILD/tests/programs/loop

# inside SIZE COMMAND...: runs the command in a mount namespace with /dev/shm of SIZE
inside() {
    local size=$1
    shift
    # shellcheck disable=SC2016  # the inner shell's arguments
    unshare --mount sh -c 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"' sh "$size" "$@"
}

# by_hand COMMAND...: two ranks of the command
by_hand() (
    export HVD_SIZE=2 HVD_RENDEZVOUS
    HVD_RENDEZVOUS=127.0.0.1:$(free_port)
    HVD_RANK=1 "$@" &
    HVD_RANK=0 "$@" && wait $!
)

# The timeline names the algorithm of each batch: shared memory, not TCP.
shared_memory() { # HOW...
    rm -f "$TMP/timeline.json"
    HVD_TIMELINE=$TMP/timeline.json "$@" || return 1
    grep -q '"shm_slice"' "$TMP/timeline.json" && ! grep -q '"ring"' "$TMP/timeline.json"
}

# a file in /dev/shm would be found
nothing_in_dev_shm() {
    # shellcheck disable=SC2016  # the inner shell's
    inside 64k sh -c '
        "$1" -np 2 "$2" 8388608 2 & run=$!
        while kill -0 $run 2>/dev/null; do
            [ -z "$(ls -A /dev/shm)" ] || exit 5
            sleep 0.1
        done
        wait $run' sh "$BUILD/hvdrun" "$LOOP"
}

inside 64k true 2>/dev/null || skip_all root 'no mount namespace of our own here'
check 'hvdrun, /dev/shm of 64 KiB' shared_memory inside 64k "$BUILD/hvdrun" -np 2 "$LOOP" 33554432 2
check 'by hand, /dev/shm of 64 KiB' shared_memory inside 64k bash -c "$(declare -f by_hand free_port listens)
    by_hand '$LOOP' 33554432 2"
check 'nothing is ever put into /dev/shm' nothing_in_dev_shm
exit "$failed"
