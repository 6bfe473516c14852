#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# wheels.sh DIR: NVIDIA's NCCL, CUDA runtime and headers into DIR, from the Python package index, pinned.
# They load without a GPU. About 200 MB, once a build folder. Exit code 77 when pip cannot get them.
set -u
dir=$1
PY=${PY:-/usr/bin/python3}
packages=(nvidia-nccl-cu13==2.27.7 nvidia-cuda-runtime==13.0.96 nvidia-nvml-dev==13.0.87)
mark=$dir/.installed

[ -f "$mark" ] && [ "$(cat "$mark")" = "${packages[*]}" ] && exit 0
rm -rf "$dir" "$dir.new"
mkdir -p "$dir.new" || exit 1
if ! timeout 240 "$PY" -m pip install --quiet --no-deps --only-binary :all: --no-compile --retries 1 \
    --disable-pip-version-check --root-user-action ignore --target "$dir.new" "${packages[@]}" \
    >"$dir.log" 2>&1; then
    tail -n 1 "$dir.log"
    rm -rf "$dir.new"
    exit 77
fi
echo "${packages[*]}" >"$dir.new/.installed"
mv "$dir.new" "$dir"
