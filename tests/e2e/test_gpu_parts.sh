#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A machine with a GPU and CUDA's own packages may lack NCCL or the kernels: the programs of tests/gpu then say so and do
# the rest. nvcc is found outside PATH. The driver is our fake, as libcuda.so.1.
# timeout: 300
# takes: 19 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
trap 'rm -rf "$TMP"' EXIT
mkdir "$TMP/driver" && ln -s "$BUILD/tests/fake/cuda.so" "$TMP/driver/libcuda.so.1" || exit 1
unset HVD_RANK HVD_SIZE HVD_BACKEND HVD_GPU_FALLBACK HVD_NCCL_LIB

# on_gpu VARIABLE=VALUE... PROGRAM: runs the program with the fake as its GPU driver. Its output is in $TMP/words.
on_gpu() {
    local rc=0
    env LD_LIBRARY_PATH="$TMP/driver:$LD_LIBRARY_PATH" FAKE_CUDA=count=1 HVD_KERNELS=/proc/self/exe "$@" \
        >"$TMP/words" 2>&1 || rc=$?
    cat "$TMP/words"
    return "$rc"
}

# says COUNT WORDS: exactly COUNT lines begin with WORDS
says() {
    [ "$(grep -c "^$2" "$TMP/words")" -eq "$1" ]
}

operations_without_nccl() {
    on_gpu HVD_TEST_REAL_GPU=1 HVD_NCCL_LIB="$TMP/none" "$BUILD/tests/multi/test_gpu" &&
        says 1 'SKIP: gpu/device/nccl: libnccl.so.2: .' && says 1 '.*OK.* test_real_staged'
}

operations_with_nccl() {
    on_gpu HVD_TEST_REAL_GPU=1 HVD_NCCL_LIB="$BUILD/tests/fake/nccl-2.31/libnccl.so.2" "$BUILD/tests/multi/test_gpu" &&
        says 0 SKIP && says 1 '.*OK.* test_real_nccl' && says 1 '.*OK.* test_real_shared'
}

operations_with_a_broken_nccl() {
    ! on_gpu HVD_TEST_REAL_GPU=1 HVD_NCCL_LIB="$BUILD/tests/fake/cuda.so" "$BUILD/tests/multi/test_gpu" &&
        says 0 'SKIP: gpu/device/nccl' && says 1 '.*OK.* test_real_staged'
}

bench_without_nccl() {
    on_gpu HVD_NCCL_LIB="$TMP/none" "$BUILD/tests/gpu/bench_sums" &&
        says 1 'SKIP: gpu/bench_sums: libnccl.so.2: .'
}

# On the fake driver nothing is measured; two ranks under hvdrun.
all_measurements() {
    env HVD_TEST_FAKE=1 FAKE_CUDA=count=2 tests/gpu/run.sh bench >"$TMP/words" 2>&1 || { cat "$TMP/words"; return 1; }
    cat "$TMP/words"
    says 1 'NCCL .* 1 rank$' && says 1 'NCCL .* 2 ranks$' && says 1 'no figures are written'
}

# without_kernels PROGRAM VARIABLE=VALUE: the program must skip (exit code 77) and say that it has no kernels
without_kernels() {
    local rc=0
    on_gpu "$2" "$BUILD/tests/gpu/$1" || rc=$?
    [ "$rc" -eq 77 ] && says 1 'SKIP: gpu/[a-z_]*: kernels: .'
}

# kernels that the driver cannot load are an error and no reason to skip
with_broken_kernels() {
    ! on_gpu FAKE_CUDA=cuModuleGetFunction=500 "$BUILD/tests/gpu/bench_kernels" && says 0 SKIP
}

# toolkit FOLDER RELEASE: makes a fake nvcc of that release in $TMP/FOLDER/bin
toolkit() {
    mkdir -p "$TMP/$1/bin"
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.88"\n' "$2" "$2" >"$TMP/$1/bin/nvcc"
    chmod +x "$TMP/$1/bin/nvcc"
}

# finds FOLDER|- FOLDER...: nvcc.sh must find the nvcc of the first folder; the others are in PATH; CUDA_HOME is
# $TMP/home
finds() {
    local path=$TMP/tools want='' folder found
    [ "$1" = - ] || want=$TMP/$1/bin/nvcc
    shift
    for folder in "$@"; do
        path=$TMP/$folder/bin:$path
    done
    found=$(env PATH="$path" CUDA_HOME="$TMP/home" HVD_CACHE="$TMP/cache" core/backend/kernels/nvcc.sh find)
    echo "found $found"
    [ "$found" = "$want" ]
}

finds_nvcc() {
    mkdir "$TMP/tools" && ln -s "$(command -v sed)" "$(command -v bash)" "$TMP/tools" || return 1
    toolkit old 12.9
    toolkit new 13.1
    finds - && finds - old && finds new new || return 1
    toolkit home 13.0
    finds home && finds home old && finds new new || return 1
    toolkit home 12.4
    finds - old && finds new new
}

check "operations without NCCL" operations_without_nccl
check "operations with NCCL" operations_with_nccl
check "operations with an NCCL that is none" operations_with_a_broken_nccl
check "the measurement beside NCCL without NCCL" bench_without_nccl
check "make bench-gpu's run" all_measurements
for program in test_kernels bench_kernels bench_sums; do
    check "$program without kernels" without_kernels $program HVD_KERNELS="$TMP/none"
    check "$program with kernels for other GPUs" without_kernels $program FAKE_CUDA=cuModuleLoadData=209
done
check "kernels of another version" with_broken_kernels
check "nvcc in PATH and in CUDA_HOME" finds_nvcc
exit $failed
