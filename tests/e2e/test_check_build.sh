#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun --check-build about GPUs: the NCCL that a process with this machine's torch would use, the driver, the kernels.
# Driver and NCCL are fakes (tests/fake) or files that are no libraries. No GPU is touched.
# takes: 5 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
trap 'rm -rf "$TMP"' EXIT
RUN=$BUILD/hvdrun
FAKES=$BUILD/tests/fake
mkdir "$TMP/driver" && ln -s "$FAKES/cuda.so" "$TMP/driver/libcuda.so.1" || exit 1
unset HVD_NCCL_LIB HVD_KERNELS HOROVOD_NCCL_LIB VIRTUAL_ENV CONDA_PREFIX PYTHONPATH

# says NAME=VALUE... -- LINE...: each LINE (a pattern) must be in the output
says() {
    local variables=() pattern
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    env "${variables[@]}" timeout 60 "$RUN" --check-build >"$TMP/said" || return 1
    cat "$TMP/said"
    for pattern in "$@"; do
        grep -q -- "^    $pattern" "$TMP/said" || { echo "not there: $pattern" && return 1; }
    done
}

kernels() {
    if [ -e "$BUILD/hvd_kernels.fatbin" ]; then
        says -- '\[X\] kernels for GPUs (/.*/hvd_kernels.fatbin: sm_75 .*sm_120, PTX of sm_75)'
    else
        says -- '\[ \] kernels for GPUs (no kernels for GPUs: .*HVD_KERNELS names another file'
    fi
}

broken() {
    echo 'no library' >"$TMP/broken"
    head -c 1000 "$RUN" >"$TMP/cut"
    says HVD_KERNELS="$TMP/cut" HVD_NCCL_LIB="$TMP/broken" -- \
        '\[ \] kernels for GPUs (.*/cut: not a file of kernels' '\[ \] NCCL (NCCL does not load: .*/broken'
}

# The NCCL is that of the torch that is found first, even if there are other NCCLs.
of_torch() {
    local site=$TMP/site
    mkdir -p "$site/torch" "$site/nvidia/nccl/lib" && touch "$site/torch/__init__.py" &&
        cp "$FAKES/nccl-2.18/libnccl.so.2" "$site/nvidia/nccl/lib" || return 1
    says PYTHONPATH="$site" LD_LIBRARY_PATH="$FAKES/nccl-2.27:$LD_LIBRARY_PATH" -- \
        "\[ \] NCCL (2.18.6, $site/nvidia/nccl/lib/libnccl.so.2, beside torch.*; there is no driver)"
}

driver=LD_LIBRARY_PATH=$TMP/driver:$LD_LIBRARY_PATH
check driver says "$driver" -- '\[X\] CUDA (a driver for CUDA 13.0, /.*/cuda.so)'
check nccl says "$driver" HVD_NCCL_LIB="$FAKES/nccl-2.27/libnccl.so.2" -- \
    "\[X\] NCCL (2.27.7, $FAKES/nccl-2.27/libnccl.so.2, HVD_NCCL_LIB, for CUDA 13.0)"
check nccl-of-torch of_torch
check nccl-missing says HVD_NCCL_LIB=/nowhere/libnccl.so.2 -- '\[ \] NCCL (NCCL does not load: /nowhere/libnccl.so.2'
check kernels kernels
check broken broken
check driver-crashes says "$driver" FAKE_CUDA=crash=cuDriverGetVersion -- '\[ \] CUDA (loading libcuda.so.1 crashes)'
check nccl-crashes says HVD_NCCL_LIB="$FAKES/nccl.so" FAKE_NCCL=crash=ncclGetVersion -- "\[ \] NCCL (loading $FAKES/nccl.so crashes)"
exit $failed
