#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# hvd-probe on the real NCCL and CUDA runtime (wheels, no GPU is needed), and its declarations of foreign libraries
# compared with their headers.
# timeout: 1200
# shellcheck disable=SC2317  # what check calls
# shellcheck source=tests/e2e/common.sh
source "$(dirname "$0")/common.sh"
PY=${PY:-/usr/bin/python3}
CC=${CC:-gcc}
PROBE=$BUILD/hvd-probe
DOCTOR=$BUILD/hvd-doctor
WHEELS=$BUILD/wheels
unset LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES CONDA_PREFIX VIRTUAL_ENV

# abi HEADERS... -- FLAGS...: the comparison compiles, and found these headers
abi() {
    local wanted=() header
    while [ "$1" != -- ]; do
        wanted+=("$1")
        shift
    done
    shift
    "$CC" -std=gnu11 -Wall -Wno-deprecated-declarations -I. "$@" -c -o "$TMP/abi.o" tests/e2e/probe_abi.c || return 1
    for header in "${wanted[@]}"; do
        strings "$TMP/abi.o" | grep -qx "seen $header" || {
            echo "$header was not seen"
            return 1
        }
    done
}

# says NAME LINE...: the probe's answer must have these lines
says() {
    local name=$1 line
    shift
    timeout 60 "$PROBE" "$name" >"$TMP/answer" || return 1
    cat "$TMP/answer"
    for line in "$@"; do
        grep -qx -- "$line" "$TMP/answer" || {
            echo "no line \"$line\""
            return 1
        }
    done
}

# doctor WORDS CHECK: the line of the check must have the words
doctor() {
    timeout 60 "$DOCTOR" check -v --profile gpu --only "$2" >"$TMP/report"
    cat "$TMP/report"
    grep -q -- "$1" "$TMP/report"
}

mpi=()
command -v mpicc >/dev/null && read -ra mpi <<<"-DWITH_MPI $(mpicc --showme:compile 2>/dev/null)"
check abi-debian abi hwloc.h -- "${mpi[@]}"

tests/wheels.sh "$WHEELS" >"$TMP/wheels"
case $? in
0) ;;
77)
    skip_part wheels pip "$(head -c 200 "$TMP/wheels")"
    exit $failed
    ;;
*) exit 1 ;;
esac

nccl=$WHEELS/nvidia/nccl/lib/libnccl.so.2
check abi-nvidia abi nvml.h cuda.h -- -I"$WHEELS/nvidia/cu13/include"

export PYTHONPATH=$WHEELS
check nccl-package says nccl "lib.0.path $nccl" 'lib.0.how Python package' 'lib.0.version 2.27.7' \
    'lib.0.cuda 13.0'
check cudart-package says cudart 'lib.0.version 13.0'
check doctor-package doctor '^pass .*nccl-load: NCCL 2.27.7 for CUDA 13.0 in a Python package' nccl-load
check doctor-rules doctor 'nccl-known-bad: NCCL 2.27.7' nccl-known-bad

export LD_LIBRARY_PATH=${nccl%/*}
check nccl-loader says nccl "path $nccl" 'version 2.27.7' 'lib.0.how loader'
check nccl-once doctor '^pass .*nccl-multiple: one NCCL' nccl-multiple

# A second NCCL for another CUDA: our fake is 2.8.4 for CUDA 11.0.
if [ -f "$BUILD/tests/fake/nccl.so" ]; then
    mkdir "$TMP/old"
    cp "$BUILD/tests/fake/nccl.so" "$TMP/old/libnccl.so.2"
    LD_LIBRARY_PATH=$TMP/old check nccl-two doctor '^FAIL .*nccl-multiple: NCCL for different CUDA majors' \
        nccl-multiple
else
    skip_part nccl-two fakes "make tests-bin has not built tests/fake"
fi

# Half a library: its text may be read, and loading it is an error, not a crash.
mkdir "$TMP/half"
head -c 3000000 "$nccl" >"$TMP/half/libnccl.so.2"
LD_LIBRARY_PATH=$TMP/half check nccl-half says nccl "lib.0.path $TMP/half/libnccl.so.2"
check elf says "elf" "object.0.kind hvd"
exit $failed
