# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# gpu_ranks.sh: tests/python's ranks with tensors on a GPU, sourced after common.sh. test_python_gpu.sh uses it with our
# fake driver, tests/gpu/test_torch.sh with a real one. $PY is a Python with torch.
# shellcheck disable=SC2154  # what common.sh sets
export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$ROOT/core/python:$ROOT/tests/python OMP_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE=1
unset HVD_BACKEND HVD_GPU_FALLBACK HVD_NCCL_LIB

# ranks N VARIABLE=VALUE... -- NAME...: runs tests/python/rank_NAME.py on N ranks with these variables
ranks() {
    local n=$1 variables=()
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    env "${variables[@]}" timeout -k 5 400 "$PY" tests/python/ranks.py -t 380 "$n" "$PY" tests/python/rank.py "$@"
}

# ranks_refused VARIABLE=VALUE: an operation that NCCL cannot do fails with the same sentence on every rank, unless the
# user allows the fallback.
ranks_refused() {
    ranks 2 "$1" -- gpu:test_results_of_the_engine >"$TMP/refused" 2>&1 && return 1
    cat "$TMP/refused"
    for rank in 0 1; do
        grep -q "^\[$rank\] .*HvdError: .*HVD_GPU_FALLBACK=1" "$TMP/refused" || return 1
    done
}
