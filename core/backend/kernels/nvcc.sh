#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# nvcc.sh find: prints the nvcc that builds the kernels; nothing where there is none.
# nvcc.sh get:  fetches one where there is none: NVIDIA's packages from the Python package index, pinned,
#               about 100 MB, into ${HVD_CACHE:-~/.cache/hvd}. Exit code 77 when pip cannot get them; pip is
#               asked again only after an hour.
#
# A nvcc in PATH, or else in ${CUDA_HOME:-/usr/local/cuda}/bin, is taken when it is of this CUDA or newer: the
# oldest GPUs that the kernels are built for (kernels.mk) are the oldest of CUDA 13.
set -u
PY=${PY:-/usr/bin/python3}
cuda=13
packages=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96)
cache=${HVD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hvd}
dir=$cache/cuda-13.0.88
nvcc=$dir/nvidia/cu13/bin/nvcc

find_nvcc() {
    local own major
    for own in "$(command -v nvcc)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        [ -x "$own" ] || continue
        major=$("$own" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
        [ "${major:-0}" -ge $cuda ] && echo "$own" && return
    done
    [ ! -x "$nvcc" ] || echo "$nvcc"
}

get() {
    [ -z "$(find_nvcc)" ] || exit 0
    mkdir -p "$cache" || exit 1
    exec 9>"$dir.lock"
    flock 9
    [ -z "$(find_nvcc)" ] || exit 0
    [ -z "$(find "$dir.failed" -mmin -60 2>/dev/null)" ] || exit 77
    rm -rf "$dir" "$dir.new" "$dir.failed"
    echo 'deps: fetching nvcc, which compiles the kernels for GPUs (about 100 MB)'
    if ! timeout 300 "$PY" -m pip install --quiet --no-deps --only-binary :all: --no-compile --retries 1 \
        --disable-pip-version-check --root-user-action ignore --target "$dir.new" "${packages[@]}" \
        >"$dir.log" 2>&1; then
        echo "deps: no nvcc for the kernels of GPUs: $(tail -n 1 "$dir.log" | head -c 200)"
        rm -rf "$dir.new"
        touch "$dir.failed"
        exit 77
    fi
    mv "$dir.new" "$dir"
}

case ${1:-} in
find) find_nvcc ;;
get) get ;;
*)
    echo "usage: nvcc.sh find|get" >&2
    exit 2
    ;;
esac
