#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `pip install .` into a virtual environment, without a network: the package contains its library and programs, and works
# from another folder.
# timeout: 1200
# takes: 18 s
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
build=$(realpath "$BUILD")
PY=${PY:-/usr/bin/python3}
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH HVD_LIBRARY

if ! "$PY" -c 'import venv, ensurepip, setuptools, wheel' 2>/dev/null; then
    echo "SKIP: e2e/test_python_wheel: python3-venv python3-setuptools python3-wheel: $PY has not all"
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED $1"
    [ -e "$dir/log" ] && tail -30 "$dir/log"
    exit 1
}

timeout 400 "$PY" -m venv --system-site-packages "$dir/venv" >"$dir/log" 2>&1 || fail "venv"
HVD_BUILD=$BUILD timeout 300 "$dir/venv/bin/python" -m pip install --no-build-isolation --no-index --no-deps . \
    >"$dir/log" 2>&1 || fail "pip install"
rm "$dir/log"
cp tests/python/*.py "$dir" && cd "$dir" || exit 1

cat >where.py <<'END'
import sys
import hvd._lib
hvd.init()
assert hvd._lib.lib.path.startswith(sys.prefix), hvd._lib.lib.path
assert hvd.size() == 1
END
timeout 200 venv/bin/python where.py >log 2>&1 || fail "the library is not the wheel's own"
for name in hvd_kernels.fatbin libhvd_mpi.so; do
    [ ! -e "$build/$name" ] || [ -e "$(echo venv/lib/python3*/site-packages/hvd)/$name" ] || fail "$name is not in the wheel"
done
for program in hvdrun hvd-agent horovodrun; do
    [ -x "venv/bin/$program" ] || fail "$program is not in the wheel"
done
if "$PY" -c 'import torch' 2>/dev/null; then
    timeout -k 5 300 venv/bin/hvdrun -np 2 venv/bin/python rank.py ops >log 2>&1 || fail "2 ranks of the wheel"
    echo 'import horovod.torch as hvd; hvd.init(); assert hvd.size() == 2, horovod.__file__' >names.py
    timeout -k 5 100 venv/bin/horovodrun -np 2 venv/bin/python names.py >log 2>&1 || fail "2 ranks that import horovod"
else
    echo "SKIP: e2e/test_python_wheel/ranks: python3-torch: $PY cannot import it"
fi
venv/bin/python -m pip uninstall -y hvd >log 2>&1 || fail "pip uninstall"
[ ! -e venv/bin/hvdrun ] || fail "pip uninstall has left hvdrun"
echo "ok wheel"
