#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle_enter.sh ROOT BUNDLE EXAMPLES WORK COMMAND...: runs the command as an ordinary user in a root file system with
# the bundle at /hvd, as a container would see it. BUNDLE_ENV='NAME=VALUE ...' is added to the environment. The caller runs it
# in mount and pid namespaces of its own, which end everything that it starts. ROOT is not written to. WORK is an empty
# folder. Exit code 78: this kernel cannot lay one file system over another here.
set -eu
root=$1 bundle=$2 examples=$3 work=$4
shift 4
mount --make-rprivate /
mount -t tmpfs -o mode=755 work "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$work/root" || exit 78
inside=$work/root
mkdir -p "$inside/hvd" "$inside/examples" "$inside/proc" "$inside/dev" "$inside/sys" "$inside/tmp"
mount --bind "$bundle" "$inside/hvd"
mount -o remount,bind,ro "$inside/hvd"
mount --bind "$examples" "$inside/examples"
mount -o remount,bind,ro "$inside/examples"
mount -t proc proc "$inside/proc"
mount --rbind /dev "$inside/dev"
mount -t sysfs -o ro sysfs "$inside/sys" 2>/dev/null || mount --rbind /sys "$inside/sys"
mount -t tmpfs -o mode=1777 tmp "$inside/tmp"
# shellcheck disable=SC2086  # several words
exec env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HVD_TEST_MARK="${HVD_TEST_MARK:-}" \
    ${BUNDLE_ENV:-} /usr/sbin/chroot --userspec=1000:1000 --groups= "$inside" "$@"
