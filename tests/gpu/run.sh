#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh test|bench: what `make test-gpu` and `make bench-gpu` run, for a machine that has a GPU and its driver but no
# compiler and none of our packages: after `make gpu-kit` on another machine, copy the checkout with its build folder there.
# Shared libraries that it lacks are taken from $BUILD/gpu-kit. NCCL: what the loader or the Python of PATH has, or
# $BUILD/wheels. bench also writes its figures to $BUILD/bench/gpu-device.txt. Both end within ten minutes.
set -u
cd "$(dirname "$0")/../.." || exit 1
export BUILD=${BUILD:-build} PY=${PY:-$(command -v python3)}
TEST_SECONDS=330 SUMS_SECONDS=100 # at most; the second for each run of bench_sums and bench_torch

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

programs=("$BUILD"/tests/gpu/bench_{kernels,sums} "$BUILD"/tests/multi/test_gpu{,_elastic} "$BUILD"/{libhvd.so,hvdrun,hvd-agent,hvd-doctor})
tests=()
for test in tests/gpu/test_*.c; do
    tests+=("$BUILD/${test%.c}")
done
for program in "${programs[@]}" "${tests[@]}"; do
    [ -e "$program" ] || { echo "run.sh: $program is not built (make gpu-kit)" >&2 && exit 1; }
done

# missing_libraries: what our programs cannot find, or cannot use
missing_libraries() {
    ldd "${programs[@]}" "${tests[@]}" 2>&1 | sed -n 's/^\t*\(.*\) => not found.*/\1/p; s/.*: \(.*\): version `\(.*\)'"'"' not found.*/\2/p' | sort -u
}

# Libraries of the kit may need others.
for _ in 1 2 3 4 5 6 7 8; do
    added=0
    for library in $(missing_libraries); do
        [ -e "$BUILD/gpu-kit/$library" ] && ln -s "$(realpath "$BUILD/gpu-kit/$library")" "$folder" && added=1
    done
    [ $added -eq 1 ] || break
done
missing=$(missing_libraries)
if [ -n "$missing" ]; then
    echo "run.sh: missing here and in $BUILD/gpu-kit: ${missing//$'\n'/, }" >&2
    exit 1
fi

# A framework's NCCL is what its programs will use, so it comes first.
if [ -z "${HVD_NCCL_LIB:-}" ]; then
    for library in "$("$PY" -c 'import nvidia.nccl as n; print(n.__path__[0])' 2>/dev/null)" "$BUILD/wheels/nvidia/nccl"; do
        [ ! -e "$library/lib/libnccl.so.2" ] || { export HVD_NCCL_LIB=$library/lib/libnccl.so.2 && break; }
    done
fi

# sums N: bench_sums on N GPUs
sums() {
    local command=("$BUILD/tests/gpu/bench_sums")
    [ "$1" -eq 1 ] || command=("$BUILD/hvdrun" -np "$1" --doctor=off "${command[@]}")
    timeout -k 5 $SUMS_SECONDS "${command[@]}" 2>&1 | sed 's/^\[[0-9]*\]<stdout>://' | awk '!/^GPU / && !seen[$0]++'
    return "${PIPESTATUS[0]}"
}

# steps N: bench_torch on N GPUs, if $PY has a torch that sees one
steps() {
    local command=(env HVD_RANK=0 HVD_SIZE=1 "$PY" tests/gpu/bench_torch.py)
    "$PY" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || return 0
    [ "$1" -eq 1 ] || command=("$BUILD/hvdrun" -np "$1" --doctor=off "$PY" tests/gpu/bench_torch.py)
    HVD_LIBRARY=$(realpath "$BUILD")/libhvd.so PYTHONPATH=$PWD/core/python timeout -k 5 $SUMS_SECONDS "${command[@]}" 2>&1 |
        sed 's/^\[[0-9]*\]<stdout>://'
    return "${PIPESTATUS[0]}"
}

bench() {
    local rc gpus
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ), $(git describe --always --dirty 2>/dev/null || echo 'unknown revision'), load $(cut -d' ' -f1 /proc/loadavg), $(nproc) processors"
    timeout -k 5 60 "$BUILD/tests/gpu/bench_kernels" | tee "$folder/kernels"
    rc=${PIPESTATUS[0]}
    [ "$rc" -eq 0 ] || return "$rc"
    gpus=$(sed -n 's/^GPUs: //p' "$folder/kernels")
    sums 1 && steps 1 || return
    [ "$gpus" -eq 1 ] || { sums "$gpus" && steps "$gpus"; }
}

case ${1:-} in
test)
    timeout -k 30 "$TEST_SECONDS" "$PY" tests/run.py --alone "$BUILD" "${tests[@]}" \
        "gpu/device=env HVD_TEST_REAL_GPU=1 $BUILD/tests/multi/test_gpu" \
        "gpu/elastic=env HVD_TEST_REAL_GPU=1 $BUILD/tests/multi/test_gpu_elastic" tests/gpu/test_torch.sh tests/gpu/test_doctor.sh
    ;;
bench)
    file=$BUILD/bench/gpu-device.txt
    mkdir -p "$BUILD/bench"
    bench | tee "$folder/figures"
    rc=${PIPESTATUS[0]}
    if [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ]; then
        exit "$rc"
    elif grep -q ^SKIP "$folder/figures"; then
        echo 'no figures are written: something is missing here (SKIP)'
    else
        mv "$folder/figures" "$file" && echo "written: $file"
    fi
    ;;
*)
    echo 'usage: tests/gpu/run.sh test|bench' >&2
    exit 2
    ;;
esac
