#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.torch on this machine's GPU: one rank through the NCCL that torch brings, 2 to 4 ranks that share the GPU
# through the host's memory, and as many ranks as there are GPUs through NCCL. make test-gpu calls it; skipped
# where no Python has a torch that sees a GPU.
# timeout: 1500
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
trap 'rm -rf "$TMP"' EXIT
for python in "${PY:-}" python3 /usr/bin/python3 ''; do
    [ -n "$python" ] && "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && break
done
[ -n "$python" ] || skip_all torch-gpu "no python3 has a torch that sees a GPU"
export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$PWD/core/python:$PWD/tests/python OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1 HVD_TEST_GPU=real
unset HVD_BACKEND HVD_GPU_FALLBACK HVD_NCCL_LIB
"$python" -c 'import torch; print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(),
    torch.cuda.device_count(), "x", torch.cuda.get_device_name())'
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')

ranks() { # N VARIABLE=VALUE... -- NAME...
    local n=$1 variables=()
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    env "${variables[@]}" timeout -k 5 400 "$python" tests/python/ranks.py -t 380 "$n" "$python" tests/python/rank.py "$@"
}

# What NCCL cannot do is an error on every rank, unless the user allows the other way.
refused_to_share() {
    ranks 2 CUDA_VISIBLE_DEVICES=0 -- gpu:test_results_of_the_engine >"$TMP/refused" 2>&1 && return 1
    cat "$TMP/refused"
    for rank in 0 1; do
        grep -q "^\[$rank\] .*HvdError: .*HVD_GPU_FALLBACK=1" "$TMP/refused" || return 1
    done
}

check "1 rank, NCCL" ranks 1 HVD_TEST_WAY=nccl -- ops autograd optimizer gpu
check "1 rank, through the host's memory" ranks 1 HVD_BACKEND=staged HVD_TEST_WAY=staged -- ops autograd optimizer gpu
for n in 2 3 4; do
    check "$n ranks that share a GPU" ranks $n CUDA_VISIBLE_DEVICES=0 HVD_GPU_FALLBACK=1 HVD_TEST_WAY=staged -- \
        ops autograd optimizer gpu
done
check "2 ranks that share a GPU, and may not" refused_to_share
if [ "$gpus" -ge 2 ]; then
    check "$gpus ranks, NCCL" ranks "$gpus" HVD_TEST_WAY=nccl -- ops autograd optimizer gpu
else
    skip_part nccl-ranks 2-gpus "there is one GPU"
fi
check "an example" timeout 200 env HVD_TEST_GPU= "$python" - <<'END'
import runpy, sys
try:
    import sklearn  # noqa: F401
except ImportError:
    sys.exit(0)
sys.argv, sys.path[0] = ["examples/digits_torch.py", "--epochs", "2"], "examples"
runpy.run_path(sys.argv[0], run_name="__main__")
import torch
assert torch.cuda.max_memory_allocated() > 0
END
exit $failed
