#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a pod does, without a cluster: the bundle's image copies itself into a volume, and the example's image, which
# contains nothing of hvd, trains with it: an ordinary user, no capability, a read-only root file system, no network, 64
# KiB of /dev/shm. Downloads about 300 MB. Part of make test-clean, not of make test.
# timeout: 3600
# shellcheck disable=SC2154,SC2317,SC2016  # what common.sh and container.sh set; called by check; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh
unset LD_LIBRARY_PATH

version=$(sed -n 's/^#define HVD_VERSION "\(.*\)"/\1/p' core/include/hvd.h)
mkdir -p "$TMP/build/images" && ln -s "$BUILD/bundle" "$TMP/build/bundle" || exit 1
images/images.sh "$TMP/build" "$version" bundle example >"$TMP/built" 2>&1 || {
    cat "$TMP/built"
    exit 1
}
cat "$TMP/built"
grep -q '^SKIP' "$TMP/built" && skip_all network 'the image could not be made'
mkdir -p "$TMP/hvd" && chmod 777 "$TMP/hvd" || exit 1
for name in bundle example; do
    podman load --quiet --input "$TMP/build/images/hvd-$name.tar" && rm "$TMP/build/images/hvd-$name.tar" || exit 1
done

run() {
    timeout 300 podman run --rm --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" --network=none \
        --cap-drop=all --security-opt=no-new-privileges --read-only --shm-size=64k "$@"
}
nothing_of_ours() {
    ! run "localhost/hvd-example:$version" /usr/bin/python3 -c 'import hvd' &&
        run "localhost/hvd-example:$version" sh -c '! command -v hvdrun && [ "$(id -u)" = 1000 ]'
}
trains() {
    run --volume "$TMP/hvd:/hvd:ro" "localhost/hvd-example:$version" /hvd/bin/hvdrun -np 2 --doctor=off \
        python3 /examples/digits_torch.py --epochs 3 >"$TMP/said" 2>&1 || {
        cat "$TMP/said"
        return 1
    }
    grep -q 'epoch  3 ' "$TMP/said"
}
doctor() {
    run --volume "$TMP/hvd:/hvd:ro" "localhost/hvd-example:$version" /hvd/bin/hvd-doctor check || [ $? -le 1 ]
}

check 'nothing of ours' nothing_of_ours
check 'the bundle' run --volume "$TMP/hvd:/hvd" "localhost/hvd-bundle:$version"
check 'trains' trains
check 'the doctor' doctor
exit "$failed"
