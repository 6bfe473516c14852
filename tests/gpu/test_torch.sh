#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.torch on this machine's GPU: one rank through torch's NCCL, 2 to 4 ranks that share the GPU through host memory, and
# as many ranks as there are GPUs through NCCL. make test-gpu calls it. Skipped if no Python has a torch that sees a GPU.
# timeout: 1500
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
trap 'rm -rf "$TMP"' EXIT
for python in "${PY:-}" python3 /usr/bin/python3 ''; do
    [ -n "$python" ] && "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && break
done
[ -n "$python" ] || skip_all torch-gpu "no python3 has a torch that sees a GPU"
PY=$python
# shellcheck source=tests/e2e/gpu_ranks.sh
. tests/e2e/gpu_ranks.sh
export HVD_TEST_GPU=real
"$python" -c 'import torch; print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(),
    torch.cuda.device_count(), "x", torch.cuda.get_device_name())'
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
all=(ops autograd optimizer flight broadcast join gpu)

check "1 rank, NCCL" ranks 1 HVD_TEST_WAY=nccl -- "${all[@]}"
check "1 rank, through the host's memory" ranks 1 HVD_BACKEND=staged HVD_TEST_WAY=staged -- "${all[@]}"
for n in 2 3 4; do
    check "$n ranks that share a GPU" ranks $n CUDA_VISIBLE_DEVICES=0 HVD_GPU_FALLBACK=1 HVD_TEST_WAY=staged -- "${all[@]}"
done
check "2 ranks that share a GPU, and may not" ranks_refused CUDA_VISIBLE_DEVICES=0
# From 2.30 on NCCL allows several ranks on a GPU: torch's own, or LD_PRELOAD's.
shared=(CUDA_VISIBLE_DEVICES=0 NCCL_MULTI_RANK_GPU_ENABLE=1 HVD_TEST_WAY=nccl)
lost() { # the last of three ranks is killed; both others must notice
    local output result
    output=$(env "${shared[@]}" HVD_TEST_END=kill timeout -k 5 100 "$PY" tests/python/ranks.py -k -t 90 3 \
        "$PY" tests/python/rank.py lost 2>&1)
    result=$?
    printf '%s\n' "$output"
    [ "$result" -eq 137 ] && [ "$(grep -c 'heard of it' <<<"$output")" -eq 2 ]
}
if "$python" - <<'END'
import ctypes, sys, torch
version = ctypes.c_int()
try:
    ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version))
except AttributeError:  # none is preloaded: torch's own
    sys.exit(torch.cuda.nccl.version() < (2, 30))
sys.exit(version.value < 23000)
END
then
    for n in 2 3; do
        check "$n ranks that share a GPU, NCCL" ranks $n "${shared[@]}" -- "${all[@]}"
    done
    check "a rank is killed beside an operation of NCCL" lost
else
    skip_part nccl-shared nccl-2.30 "this NCCL gives a GPU to one rank"
fi
if [ "$gpus" -ge 2 ]; then
    check "$gpus ranks, NCCL" ranks "$gpus" HVD_TEST_WAY=nccl -- "${all[@]}"
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
