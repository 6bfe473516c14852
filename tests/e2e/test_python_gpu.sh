#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.torch with tensors on a GPU, on a machine without one: the fake driver presents the process's memory as a GPU's
# (tests/fake/cuda, unified=1), and tests/python's ranks run on it, through host memory and through the fake NCCL.
# On a machine with a GPU: make test-gpu.
# timeout: 1200
# takes: 25 s
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
check "4 ranks, through NCCL" ranks 4 "${nccl[@]}" -- ops join gpu
check "1 rank ahead of its GPU" ranks 1 "${nccl[@]}" -- ahead
check "2 ranks ahead of their GPUs" ranks 2 "${nccl[@]}" -- ahead
lost() { # the last of three ranks is killed; both others must notice
    local output result
    mkdir "$TMP/marks"
    output=$(env "${nccl[@]}" HVD_TEST_END=ahead HVD_TEST_MARKS="$TMP/marks" timeout -k 5 300 "$PY" tests/python/ranks.py -k -t 280 3 \
        "$PY" tests/python/rank.py lost 2>&1)
    result=$?
    [ "$result" -eq 137 ] && [ "$(grep -c 'heard of it' <<<"$output")" -eq 2 ] && return
    printf '%s\n' "$output"
    return 1
}
check "a rank killed when the others are ahead of their GPUs" lost

# Two hosts of two ranks: NCCL for tensors on GPUs, MPI for other tensors.
through_mpi() { # VARIABLE=VALUE...
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # shellcheck disable=SC2016  # for the rank's own shell
    env "${nccl[@]}" HVD_BACKEND=mpi HVD_LOG_LEVEL=info TMPDIR="$TMP" "$@" \
        timeout -k 5 300 mpirun --oversubscribe --bind-to none -np 4 bash -c '
            export HVD_LOCALITY=host$((OMPI_COMM_WORLD_RANK / 2))
            export FAKE_CUDA="uuid=$((64 + OMPI_COMM_WORLD_RANK));bus=$((7 + OMPI_COMM_WORLD_RANK))"
            exec "$@"' rank "$PY" tests/python/rank.py ops gpu >"$TMP/mpi" 2>&1
    local rc=$?
    cat "$TMP/mpi"
    [ "$rc" -eq 0 ] && grep -q 'back end mpi: ' "$TMP/mpi" && grep -q 'back end nccl: ' "$TMP/mpi"
}

if command -v mpirun >/dev/null && [ -e "$BUILD/libhvd_mpi.so" ]; then
    check "NCCL beside MPI" through_mpi
else
    skip_part mpi openmpi-bin 'no mpirun here, or hvd was built without mpi.h'
fi
exit $failed
