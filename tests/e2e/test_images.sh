#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make images: bundle and operator, built by podman without a registry, then run as a cluster runs them: the image's user,
# no capability, a read-only root file system, no network.
# timeout: 900
# takes: 30 s
# shellcheck disable=SC2154,SC2317  # what common.sh and container.sh set; called by check
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh
unset LD_LIBRARY_PATH

names=(bundle)
[ -e operator/main_hvd-operator.c ] && names+=(operator)
version=$(sed -n 's/^#define HVD_VERSION "\(.*\)"/\1/p' core/include/hvd.h)
mkdir -p "$TMP/build/images" && ln -s "$BUILD/bundle" "$TMP/build/bundle" &&
    ln -s "$BUILD/images/operator" "$TMP/build/images/operator" || exit 1

builds() {
    local image
    images/images.sh "$TMP/build" "$version" "${names[@]}" | tee "$TMP/built"
    for image in "${names[@]}"; do
        grep -q "^localhost/hvd-$image:$version .* MB.* MB as an archive" "$TMP/built" || return 1
        podman load --quiet --input "$TMP/build/images/hvd-$image.tar" || return 1
    done
    [ -z "$(find "$TMP/build/images" -name 'storage-*')" ]
}
check 'make images' builds
cat "$TMP/built"

# confined PODMAN-OPTION... -- COMMAND...
confined() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    timeout 120 podman run --rm --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" --network=none \
        --cap-drop=all --security-opt=no-new-privileges --read-only --read-only-tmpfs=false "${options[@]}" "$@"
}

installs() {
    mkdir -p "$TMP/hvd" && chmod 777 "$TMP/hvd" &&
        confined --volume "$TMP/hvd:/hvd" -- "localhost/hvd-bundle:$version" &&
        diff -r --no-dereference "$BUILD/bundle" "$TMP/hvd" && [ "$(stat -c %u "$TMP/hvd/bin")" = 65532 ]
}
user() {
    local image
    for image in "${names[@]}"; do
        [ "$(podman image inspect --format '{{.User}}' "localhost/hvd-$image:$version")" = 65532:65532 ] || return 1
    done
}
operator_runs() {
    confined -- "localhost/hvd-operator:$version" --version | grep -q '^hvd-operator [0-9]' &&
        confined --entrypoint /usr/bin/hvd-plane -- "localhost/hvd-operator:$version" --version |
        grep -q '^hvd-plane [0-9]'
}

check 'an ordinary user by number' user
check 'the bundle copies itself' installs
[ ${#names[@]} -eq 1 ] || check 'the operator starts' operator_runs
exit "$failed"
