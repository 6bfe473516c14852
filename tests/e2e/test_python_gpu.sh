#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.torch with tensors on a GPU, on a machine without one: the fake driver presents the process's memory as a GPU's
# (tests/fake/cuda, unified=1), and tests/python's ranks run on it, through host memory and through the fake NCCL.
# On a machine with a GPU: make test-gpu.
# timeout: 1200
# takes: 18 s
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
trap 'rm -rf "$TMP"' EXIT
PY=${PY:-/usr/bin/python3}
"$PY" -c 'import torch, numpy' 2>/dev/null || skip_all python3-torch "$PY cannot import it"
# shellcheck source=tests/e2e/gpu_ranks.sh
. tests/e2e/gpu_ranks.sh
export HVD_TEST_GPU=fake

staged=(HVD_BACKEND=staged HVD_TEST_WAY=staged)
check "1 rank, through the host's memory" ranks 1 "${staged[@]}" -- gpu ops
check "2 ranks, through the host's memory" ranks 2 "${staged[@]}" -- ops autograd optimizer flight broadcast elastic gpu
check "4 ranks, through the host's memory" ranks 4 "${staged[@]}" -- ops gpu
check "where there is no NCCL" ranks 2 HVD_GPU_FALLBACK=1 \
    HVD_NCCL_LIB=/nowhere/libnccl.so.2 HVD_TEST_WAY=staged -- gpu
check "2 ranks that share a GPU" ranks 2 HVD_GPU_FALLBACK=1 FAKE_CUDA="uuid=1;bus=1" -- gpu
check "an error where there is no NCCL" ranks_refused HVD_NCCL_LIB=/nowhere/libnccl.so.2
nccl=(HVD_NCCL_LIB="$BUILD/tests/fake/nccl-2.27/libnccl.so.2" HVD_TEST_WAY=nccl)
check "1 rank, through NCCL" ranks 1 "${nccl[@]}" -- gpu ops
check "2 ranks, through NCCL" ranks 2 "${nccl[@]}" -- ops autograd optimizer flight broadcast elastic gpu
check "4 ranks, through NCCL" ranks 4 "${nccl[@]}" -- ops gpu
exit $failed
