#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# debian13_rootfs.sh: prints the path of a Debian 13 root file system with PyTorch and Open MPI, made by
# mmdebstrap at the first call (about 3 minutes, 1.4 GB) and kept in ${HVD_CACHE:-~/.cache/hvd}. Root.
set -eu
packages=python3-torch,python3-sklearn,python3-numpy,openmpi-bin,iproute2,procps,libcurl3t64-gnutls
packages+=,libmicrohttpd12t64,libjansson4,libhwloc15,libyaml-0-2,libgnutls30t64,libsodium23,libpmix2t64
cache=${HVD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hvd}
root=$cache/debian13
mkdir -p "$cache"
# Two checkouts on one machine make it once.
exec 9>"$cache/debian13.lock"
flock 9
if [ "$(cat "$root.made-of" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$root.made-of" "$root" "$root.new"
    trap 'rm -rf "$root.new"' EXIT
    mmdebstrap --quiet --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Retries "3"' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --include="$packages" trixie "$root.new" >&2 9>&-
    mv "$root.new" "$root"
    echo "$packages" >"$root.made-of"
fi
echo "$root"
