#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rootfs.sh NAME...: prints the path of each root file system, which mmdebstrap makes at the first call
# (about 3 minutes) and keeps in ${HVD_CACHE:-~/.cache/hvd}. Needs root.
#
#   debian13   with PyTorch, Open MPI and what our programs load (1.4 GB)
#   debian11   with PyTorch, and of our programs' libraries only the C library
#   arm64      Debian 12 for aarch64: libraries and headers of our programs and tests. Its
#              packages are unpacked, none of their programs runs (300 MB)
set -eu
cache=${HVD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hvd}
mkdir -p "$cache"

# make_root NAME SUITE PACKAGES [MMDEBSTRAP-OPTION...]
make_root() {
    local root=$cache/$1 suite=$2 packages=$3
    shift 3
    # Two checkouts on one machine share the cache.
    exec 9>"$root.lock"
    flock 9
    if [ "$(cat "$root.made-of" 2>/dev/null)" != "$packages" ]; then
        rm -rf "$root.made-of" "$root" "$root.new"
        # shellcheck disable=SC2064  # expanded now: a local name
        trap "rm -rf '$root.new'" EXIT
        mmdebstrap --quiet --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' \
            --aptopt='Acquire::Retries "3"' --dpkgopt='path-exclude=/usr/share/doc/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' --include="$packages" "$@" "$suite" "$root.new" >&2 9>&-
        mv "$root.new" "$root"
        echo "$packages" >"$root.made-of"
    fi
    exec 9>&-
    echo "$root"
}

for name in "$@"; do
    case $name in
    debian13)
        packages=python3-torch,python3-sklearn,python3-numpy,openmpi-bin,iproute2,procps,libcurl3t64-gnutls
        packages+=,libmicrohttpd12t64,libjansson4,libhwloc15,libyaml-0-2,libgnutls30t64,libsodium23,libpmix2t64
        make_root debian13 trixie "$packages"
        ;;
    debian11) make_root debian11 bullseye python3-torch,python3-sklearn ;;
    arm64)
        packages=libc6-dev,libcmocka-dev,libcurl4-gnutls-dev,libgnutls28-dev,libhwloc-dev
        packages+=,libjansson-dev,libmicrohttpd-dev,libpmix-dev,libsodium-dev,libyaml-dev
        make_root arm64 bookworm "$packages" --architectures=arm64 --variant=extract \
            --dpkgopt='path-include=/usr/share/doc/*/copyright' \
            --dpkgopt='path-include=/usr/share/doc/*/changelog.Debian*'
        ;;
    *)
        echo "rootfs.sh: no root $name: want arm64, debian11 or debian13" >&2
        exit 2
        ;;
    esac
done
