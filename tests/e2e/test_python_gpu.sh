#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.torch with tensors on a GPU, as far as that goes without one: a driver of ours takes the process's memory
# for a GPU's (tests/fake/cuda, unified=1), and tests/python's ranks run on it, through the host's memory and
# through an NCCL of ours. On a machine with a GPU and a torch that knows it: make test-gpu.
# timeout: 1200
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
trap 'rm -rf "$TMP"' EXIT
PY=${PY:-/usr/bin/python3}
export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$PWD/core/python:$PWD/tests/python OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1 HVD_TEST_GPU=fake
unset HVD_BACKEND HVD_GPU_FALLBACK

"$PY" -c 'import torch, numpy' 2>/dev/null || skip_all python3-torch "$PY cannot import it"

# ranks N VARIABLE=VALUE... -- NAME...
ranks() {
    local n=$1 variables=()
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    env "${variables[@]}" timeout -k 5 300 "$PY" tests/python/ranks.py -t 280 "$n" "$PY" tests/python/rank.py "$@"
}

# Without a way that the user allows: the same sentence on every rank.
refused_without_nccl() {
    ranks 2 HVD_NCCL_LIB=/nowhere/libnccl.so.2 -- gpu:test_results_of_the_engine >"$TMP/refused" 2>&1 && return 1
    cat "$TMP/refused"
    for rank in 0 1; do
        grep -q "^\[$rank\] .*HvdError: .*HVD_GPU_FALLBACK=1" "$TMP/refused" || return 1
    done
}

staged=(HVD_BACKEND=staged HVD_TEST_WAY=staged)
check "1 rank, through the host's memory" ranks 1 "${staged[@]}" -- gpu ops
check "2 ranks, through the host's memory" ranks 2 "${staged[@]}" -- ops autograd optimizer elastic gpu
check "4 ranks, through the host's memory" ranks 4 "${staged[@]}" -- ops gpu
check "where there is no NCCL" ranks 2 HVD_GPU_FALLBACK=1 \
    HVD_NCCL_LIB=/nowhere/libnccl.so.2 HVD_TEST_WAY=staged -- gpu
check "2 ranks that share a GPU" ranks 2 HVD_GPU_FALLBACK=1 FAKE_CUDA="uuid=1;bus=1" -- gpu
check "an error where there is no NCCL" refused_without_nccl
nccl=(HVD_NCCL_LIB="$BUILD/tests/fake/nccl-2.27/libnccl.so.2" HVD_TEST_WAY=nccl)
check "1 rank, through NCCL" ranks 1 "${nccl[@]}" -- gpu ops
check "2 ranks, through NCCL" ranks 2 "${nccl[@]}" -- ops autograd optimizer elastic gpu
check "4 ranks, through NCCL" ranks 4 "${nccl[@]}" -- ops gpu
exit $failed
