#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_arm64.sh: builds everything for aarch64 with Debian's cross compiler, under BUILD/arm64, and runs under qemu-user
# what it can: the unit tests, some tests of several ranks, and the bundle. The libraries are Debian 12's for that
# architecture, in a root file system of their own (tests/e2e/rootfs.sh); none is installed here. An emulator has this
# machine's memory order: tests/litmus covers that of aarch64.
# timeout: 1800
# takes: 240 s
# needs: roots
#
# HVD_ARM64_CC=command   another compiler for it, e.g. "ccache aarch64-linux-gnu-gcc"
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}/arm64
here=tests/arm64
jobs=$(nproc 2>/dev/null || echo 2)
# Several ranks on one host, over memory and sockets. Elastic jobs need robust lists, which qemu-user lacks.
MULTI=(submit)

skip() {
    echo "SKIP: arm64/$1: $1: $2"
    exit 77
}

for tool in aarch64-linux-gnu-gcc qemu-aarch64 mmdebstrap; do
    command -v $tool >/dev/null || skip $tool 'it is not installed (make deps)'
done
[ "$(id -u)" -eq 0 ] || [ -d "${HVD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hvd}/arm64" ] ||
    skip root 'the libraries for aarch64 are unpacked by root'
root=$(tests/e2e/rootfs.sh arm64) || skip network 'mmdebstrap could not fetch the libraries for aarch64'

# ---- build: a make of its own, with the other architecture's tools and libraries -----------------
cc="${HVD_ARM64_CC:-aarch64-linux-gnu-gcc} --sysroot=$root"
export PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
unset MAKEFLAGS MAKELEVEL MFLAGS
# -O1 -g1, as for the sanitizers, compile in half the time. The kernels are -O3 all the same.
CFLAGS=${CFLAGS:--O1 -g1} make --no-print-directory -j"$jobs" BUILD="$build" CC="$cc" AR=aarch64-linux-gnu-ar \
    MPICC=false NVCC= WERROR=1 MULTI_BINS="${MULTI[*]/#/$build/tests/multi/test_}" lib programs tests-bin staged || exit 1
unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR

# ---- run ---------------------------------------------------------------------------------------
qemu=$(command -v qemu-aarch64)
# Tests that start programs need the kernel to start them under qemu.
enter=("${PY:-python3}" "$here/enter.py" "$qemu" "$root")
if ! "${enter[@]}" "$build/hvd-doctor" --version >/dev/null 2>&1; then
    skip binfmt 'no binfmt_misc or overlayfs in a user namespace here (Linux 6.7)'
fi

tests=()
while read -r test; do
    reason=$(sed -n "s,^${test#"$build"/tests/} ,,p" $here/WITHOUT)
    if [ -n "$reason" ]; then
        echo "SKIP: arm64/${test#"$build"/tests/}: qemu: $reason"
    else
        tests+=("arm64/${test#"$build"/tests/}=timeout -k 5 300 $test")
    fi
done < <(find "$build/tests/unit" -name 'test_*' -type f -executable | sort)
for name in "${MULTI[@]}"; do
    tests+=("arm64/multi/test_$name=timeout -k 5 300 $build/tests/multi/test_$name")
done
run=(timeout -k 5 300 "$build/hvdrun" -np 3)
tests+=("arm64/hvdrun=${run[*]} $build/tests/programs/sum 3")
tests+=("arm64/collectives=${run[*]} $build/tests/programs/collectives -q")
tests+=("arm64/elastic=${run[*]} --min-np 2 $build/tests/programs/steps 20 10")
tests+=("arm64/bundle=$here/bundle.sh $build")
failed=0
# Skips get the prefix arm64/, so that tests/SKIPS can allow them here only.
HVD_TEST_STRICT=0 "${enter[@]}" tests/run.py "$build" "${tests[@]}" | sed 's,^SKIP: ,SKIP: arm64/,'
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
# Building the images runs no program in them.
$here/images.sh "$build"
case $? in
0 | 77) ;;
*) failed=1 ;;
esac
exit $failed
