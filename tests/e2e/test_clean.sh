#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README's two commands in a bare Debian 12 container: mmdebstrap, git clone of what is committed
# here, make demo, make test. Downloads about 700 MB and takes half an hour: make test-clean, not part
# of make test. HVD_CLEAN_TARGETS names other targets ("demo test").
# timeout: 5400
# shellcheck disable=SC2154,SC2317  # what common.sh sets; run at the end
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

[ "$(id -u)" -eq 0 ] || skip_all root 'podman and mmdebstrap want to be root'
for program in podman runc mmdebstrap; do
    command -v $program >/dev/null || skip_all $program 'it is not installed'
done

# Settings that work where control groups are of both versions, and leave the user's own alone.
cat >"$TMP/containers.conf" <<EOF
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4000:4000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
EOF
export CONTAINERS_CONF=$TMP/containers.conf
cat >"$TMP/storage.conf" <<EOF
[storage]
driver = "vfs"
graphroot = "$TMP/storage"
runroot = "$TMP/run"
EOF
export CONTAINERS_STORAGE_CONF=$TMP/storage.conf
image=localhost/hvd-clean
name=hvd-clean-$$

drop() {
    podman rm --force --ignore "$name" >/dev/null 2>&1
    podman rmi --force "$image" >/dev/null 2>&1
}
at_end+=(drop)

if ! mmdebstrap --quiet --mode=root --variant=minbase --include=git,make,ca-certificates bookworm \
    "$TMP/bookworm.tar" 2>"$TMP/mmdebstrap"; then
    tail -n 20 "$TMP/mmdebstrap"
    skip_all network 'mmdebstrap could not make Debian 12'
fi
podman import --quiet "$TMP/bookworm.tar" "$image" >/dev/null || exit 1
rm -f "$TMP/bookworm.tar"

inside() { # COMMAND: in the clone
    podman exec "$name" bash -c "cd /hvd && $1"
}

podman run --detach --name "$name" --privileged --network=host --volume "$ROOT:/source:ro" "$image" \
    sleep infinity >/dev/null || exit 1
podman exec "$name" git clone --quiet --config safe.directory='*' /source /hvd || exit 1
for target in ${HVD_CLEAN_TARGETS:-demo test}; do
    start=$SECONDS
    if inside "HVD_TEST_STRICT=${HVD_TEST_STRICT:-0} make $target" >"$TMP/log" 2>&1; then
        echo "ok make $target in a bare container ($((SECONDS - start)) s): $(tail -n 1 "$TMP/log")"
    else
        echo "FAILED make $target in a bare container"
        tail -n 80 "$TMP/log"
        failed=1
    fi
done
exit "$failed"
