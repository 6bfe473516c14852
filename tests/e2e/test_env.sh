#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks started by hand: on loopback, on two hosts, with and without a key, and the errors for wrong settings and for two
# jobs at one port.
# timeout: 600
# takes: 6 s, waiting
# shellcheck disable=SC2317,SC2154,SC2030,SC2031  # functions that check calls; what common.sh sets; subshells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

head -c 32 /dev/urandom >"$TMP/key"
head -c 32 /dev/urandom >"$TMP/other"
chmod 600 "$TMP/key" "$TMP/other"

# rank RANK SIZE WHERE COMMAND...: runs the command as that rank; WHERE is the rendezvous
rank() {
    local rank=$1 size=$2 where=$3
    shift 3
    HVD_RANK=$rank HVD_SIZE=$size HVD_RENDEZVOUS=$where timeout 60 "$@"
}

loopback() (
    where=127.0.0.1:$(free_port)
    for r in 0 1 2 3; do
        rank "$r" 4 "$where" "$SUM" 3 1 &
    done
    wait_all
)

two_hosts() ( # [NAME=VALUE]... on all ranks
    where=10.213.7.1:$(free_port)
    for r in 0 1 2 3; do
        rank "$r" 4 "$where" ip netns exec "${hosts[r / 2]}" env "$@" "$SUM" 2 2 &
    done
    wait_all
)

wrong_key() (
    where=127.0.0.1:$(free_port)
    export HVD_START_TIMEOUT=30
    HVD_KEY_FILE=$TMP/key rank 0 2 "$where" "$SUM" &
    refused 'another key' env HVD_KEY_FILE="$TMP/other" HVD_RANK=1 HVD_SIZE=2 HVD_RENDEZVOUS="$where" "$SUM" ||
        exit 1
    HVD_KEY_FILE=$TMP/key rank 1 2 "$where" "$SUM" &
    wait_all
)

two_jobs() (
    where=127.0.0.1:$(free_port)
    export HVD_START_TIMEOUT=30
    HVD_KEY_FILE=$TMP/key rank 0 2 "$where" "$SUM" &
    wait_until 20 listens "${where#*:}"
    refused 'cannot listen' env HVD_KEY_FILE="$TMP/other" HVD_RANK=0 HVD_SIZE=2 HVD_RENDEZVOUS="$where" "$SUM" ||
        exit 1
    HVD_KEY_FILE=$TMP/key rank 1 2 "$where" "$SUM" &
    wait_all
)

missing_rank() {
    refused 'waiting for ranks 1-2' env HVD_START_TIMEOUT=1 HVD_KEY_FILE="$TMP/key" HVD_RANK=0 HVD_SIZE=3 \
        HVD_RENDEZVOUS="127.0.0.1:$(free_port)" "$SUM"
}

no_key_beyond_loopback() {
    refused 'there is no key' env HVD_RANK=0 HVD_SIZE=2 HVD_RENDEZVOUS=10.213.7.1:7000 "$SUM"
}

# A program in C under torchrun joins torchrun's ranks.
torchrun() (
    export TORCHELASTIC_RUN_ID=x WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=1
    HVD_RENDEZVOUS=127.0.0.1:$(free_port)
    export HVD_RENDEZVOUS
    for r in 0 1 2; do
        RANK=$r LOCAL_RANK=$r timeout 60 "$SUM" 2 1 &
    done
    wait_all
)

alone() {
    env -u HVD_RANK -u HVD_SIZE timeout 60 "$SUM" 2 1
}

check 'alone' alone
check 'a world size and no rank' env WORLD_SIZE=1 timeout 60 "$SUM" 1 1
check 'torchrun, a meeting place' torchrun
check 'torchrun, none' refused 'torchrun started this rank, and only' \
    env TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$SUM"
check 'four ranks on loopback, no key' loopback
HVD_KEY_FILE=$TMP/key check 'four ranks on loopback, a key' loopback
check 'a wrong key is refused, the job goes on' wrong_key
check 'a second job on the port is refused, the first goes on' two_jobs
check 'a missing rank is named' missing_rank
check 'no key, no listening beyond loopback' no_key_beyond_loopback
check 'HVD_RANK without HVD_SIZE' refused 'HVD_SIZE is not' env HVD_RANK=0 "$SUM"
check 'HVD_RENDEZVOUS without a port' refused 'want host:port' \
    env HVD_RANK=0 HVD_SIZE=2 HVD_RENDEZVOUS=localhost "$SUM"
check 'no key file' refused 'cannot read the key file' \
    env HVD_RANK=0 HVD_SIZE=2 HVD_RENDEZVOUS=localhost:7000 HVD_KEY_FILE="$TMP/none" "$SUM"
if can_netns && make_hosts; then
    check 'two hosts, a key' two_hosts HVD_KEY_FILE="$TMP/key"
    check 'two hosts, HVD_INSECURE=1' two_hosts HVD_INSECURE=1
else
    skip_part hosts root 'no network namespaces here'
fi
exit "$failed"
