#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks by torchrun and by hand on two hosts (network namespaces), two ranks on each: the operations and the optimizer of
# hvd.torch over TCP and shared memory together.
# timeout: 1200
# takes: 110 s, waiting
# shellcheck disable=SC2317,SC2154  # functions that check calls; what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
PY=${PY:-/usr/bin/python3}
export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$ROOT/core/python:$ROOT/tests/python
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 USE_LIBUV=0 GLOO_SOCKET_IFNAME=veth0

"$PY" -c 'import torch, numpy' 2>/dev/null || skip_all python3-torch "$PY cannot import it"
can_netns || skip_all namespaces 'no network namespaces here'
make_hosts || exit 1
head -c 32 /dev/urandom >"$TMP/key"
chmod 600 "$TMP/key"

by_hand() (
    for r in 0 1 2 3; do
        HVD_RANK=$r HVD_SIZE=4 HVD_RENDEZVOUS=10.213.7.1:7007 HVD_KEY_FILE=$TMP/key \
            on "${hosts[r / 2]}" timeout -k 5 400 "$PY" tests/python/rank.py ops optimizer broadcast &
    done
    wait_all
)

torchrun() (
    for i in 0 1; do
        on "${hosts[i]}" timeout -k 5 400 "$PY" -m torch.distributed.run --nnodes 2 --nproc_per_node 2 \
            --node_rank "$i" --master_addr 10.213.7.1 --master_port 7008 \
            --redirects 1 --tee 1 --log_dir "$TMP/log$i" tests/python/rank.py ops beside &
    done
    wait_all
)

# torchrun's variables, without torchrun.
variables() (
    for r in 0 1 2 3; do
        RANK=$r WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=7009 MASTER_ADDR=10.213.7.1 \
            on "${hosts[r / 2]}" timeout -k 5 400 "$PY" tests/python/rank.py beside &
    done
    wait_all
)

check 'by hand, two hosts' by_hand
check "torch.distributed's variables, two hosts" variables
if "$PY" -c 'import sys, torch.distributed as d
try:
    d.TCPStore("127.0.0.1", 0, 1, True)
except RuntimeError as error:
    sys.exit("libuv" in str(error))'; then
    check 'torchrun, two hosts' torchrun
else
    skip_part torchrun libuv "this torch's torchrun needs it"
fi
exit "$failed"
