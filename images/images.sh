#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# images.sh BUILD VERSION IMAGE...: builds the images bundle, operator and example with podman, without
# a registry, and leaves each as BUILD/images/hvd-IMAGE.tar (an OCI archive, for podman load, ctr images
# import, kind load). Podman uses a temporary storage folder, which is removed at the end. Prints name
# and size of each image; an image that cannot be built is skipped, and the reason printed.
#
# REGISTRY=registry.example/path   prefix of the names (default: localhost)
# PLATFORM=linux/arm64             platform that BUILD was built for (default: this machine's)
set -eu
export LC_ALL=C
build=$(realpath "$1") version=$2
shift 2
cd "$(dirname "$0")/.."
cache=${HVD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hvd}
storage=$(mktemp -d "$build/images/storage-XXXXXX")
failed=0

# shellcheck disable=SC2317  # called by trap
at_end() {
    rm -rf "$storage" 2>/dev/null || podman unshare rm -rf "$storage"
}
trap at_end EXIT
trap 'exit 1' INT TERM

cat >"$storage/containers.conf" <<EOT
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4000:4000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
EOT
cat >"$storage/storage.conf" <<EOT
[storage]
driver = "vfs"
graphroot = "$storage/graph"
runroot = "$storage/run"
EOT
export CONTAINERS_CONF=$storage/containers.conf CONTAINERS_STORAGE_CONF=$storage/storage.conf

# build_image IMAGE CONTEXT OPTION...: the Containerfiles run no command, so this needs neither root nor
# a container runtime
build_image() {
    local image=$1 context=$2 name=${REGISTRY:-localhost}/hvd-$1:$version archive=$build/images/hvd-$1.tar
    shift 2
    if ! podman build --layers=false --isolation=chroot --timestamp 0 ${PLATFORM:+--platform "$PLATFORM"} \
        --tag "$name" --file "images/$image.Containerfile" "$@" "$context" >"$storage/log" 2>&1; then
        cat "$storage/log" >&2
        failed=1
        return
    fi
    rm -f "$archive"
    podman save --quiet --format oci-archive --output "$archive" "$name" >/dev/null 2>"$storage/log" || {
        cat "$storage/log" >&2
        failed=1
        return
    }
    printf '%-32s %6s MB, %s MB as an archive: %s\n' "$name" \
        "$(podman image inspect --format '{{.Size}}' "$name" | awk '{ printf "%.1f", $1 / 1e6 }')" \
        "$(stat -c %s "$archive" | awk '{ printf "%.1f", $1 / 1e6 }')" "$archive"
}

skip() {
    echo "SKIP: images/$1: $2: $3"
}

# Debian 13 with PyTorch, as a tar file in the cache: making it takes 3 minutes.
example_base() {
    local packages=python3-torch,python3-sklearn
    base=$cache/example-$packages.tar
    [ -s "$base" ] && return
    if ! command -v mmdebstrap >/dev/null; then
        skip example mmdebstrap 'it is not installed'
        return 1
    fi
    mkdir -p "$cache"
    if ! mmdebstrap --quiet --format=tar --variant=minbase --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Retries "3"' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --include="$packages" trixie "$base.$$" \
        >"$storage/log" 2>&1; then
        tail -n 5 "$storage/log" >&2
        rm -f "$base.$$"
        skip example network 'mmdebstrap could not make Debian 13'
        return 1
    fi
    mv "$base.$$" "$base"
}

if ! command -v podman >/dev/null; then
    for image in "$@"; do
        skip "$image" podman 'it is not installed'
    done
    exit 0
fi
for image in "$@"; do
    case $image in
    bundle)
        build_image bundle "$build/bundle"
        ;;
    operator)
        if [ ! -d "$build/images/operator" ]; then
            skip operator hvd-operator 'this build has none'
            continue
        fi
        build_image operator "$build/images/operator"
        ;;
    example)
        example_base || continue
        podman import --quiet "$base" localhost/hvd-example-base \
            >/dev/null
        build_image example . --build-arg BASE=localhost/hvd-example-base
        ;;
    *)
        echo "images.sh: no image $image: want bundle, operator or example" >&2
        exit 2
        ;;
    esac
done
exit $failed
