#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same libhvd.so and programs on Debian 13 (PyTorch 2.6, Python 3.13, Open MPI 5): the Python and launcher tests in a
# root file system of Debian 13, in private mount and pid namespaces. Nothing is built there, and nothing is written
# outside of its /tmp. HVD_DEBIAN13_TESTS names other tests.
# timeout: 3000
# takes: 300 s
# needs: roots
# shellcheck disable=SC2154  # what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

[ "$(id -u)" -eq 0 ] || skip_all root 'chroot and mmdebstrap want to be root'
command -v mmdebstrap >/dev/null || skip_all mmdebstrap 'it is not installed'
unshare --mount --pid --fork true 2>/dev/null || skip_all namespaces 'no mount and pid namespaces here'
if ! root=$(tests/e2e/rootfs.sh debian13 2>"$TMP/mmdebstrap"); then
    tail -n 20 "$TMP/mmdebstrap"
    skip_all network 'mmdebstrap could not make Debian 13'
fi

# Runs in the new namespaces, which end everything in them.
cat >"$TMP/enter" <<'EOF'
#!/bin/bash
set -eu
root=$1 source=$2 build=$3 mnt=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$mnt"
mount -o remount,bind,ro "$mnt"
mount -t proc proc "$mnt/proc"
mount --rbind /dev "$mnt/dev"
mount -t sysfs -o ro sysfs "$mnt/sys" 2>/dev/null || mount --rbind /sys "$mnt/sys"
mount -t tmpfs -o mode=1777 tmp "$mnt/tmp"
mount -t tmpfs run "$mnt/run"
mount -t tmpfs mnt "$mnt/mnt"
mkdir "$mnt/mnt/source" "$mnt/mnt/build"
mount --bind "$source" "$mnt/mnt/source"
mount -o remount,bind,ro "$mnt/mnt/source"
mount --bind "$build" "$mnt/mnt/build"
mount -o remount,bind,ro "$mnt/mnt/build"
exec chroot "$mnt" env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C BUILD=/mnt/build \
    PY=/usr/bin/python3 PYTHONDONTWRITEBYTECODE=1 HVD_TEST_MARK="${HVD_TEST_MARK:-}" \
    bash -c 'cd /mnt/source && exec "$@"' enter "$@"
EOF
chmod +x "$TMP/enter"
mkdir "$TMP/mnt"

inside() {
    unshare --mount --pid --fork --kill-child "$TMP/enter" "$root" "$ROOT" "$BUILD" "$TMP/mnt" "$@"
}

check 'libhvd.so loads' inside /usr/bin/python3 -c \
    'import ctypes; print(ctypes.CDLL("/mnt/build/libhvd.so").hvd_size())'
inside /usr/bin/python3 -c 'import sys, torch; print("python", sys.version.split()[0], "torch", torch.__version__)'
for test in ${HVD_DEBIAN13_TESTS:-env pmix hvdrun hvdrun_hosts digits python}; do
    script=tests/e2e/test_$test.sh
    [ -x "$script" ] || continue
    rc=0
    inside "$script" >"$TMP/log" 2>&1 || rc=$?
    sed -e "s,^SKIP: ,SKIP: debian13/," -e "s,^ok ,ok $test: ," "$TMP/log"
    if [ $rc -ne 0 ] && [ $rc -ne 77 ]; then
        echo "FAILED $script on Debian 13 (exit code $rc)"
        failed=1
    fi
done
exit "$failed"
