# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# container.sh: podman for the tests in containers, sourced after common.sh. Settings that work where
# control groups are of both versions and that leave the user's own alone; storage under $TMP.
#
# The test runs twice: once outside, where all it does is to wait and to clean up, and once in mount and
# pid namespaces of its own, where podman is. What podman mounts and starts there ends with them, also
# when the test is killed. The inner one's $TMP lies in the outer one's.
# shellcheck disable=SC2154  # what common.sh sets

if [ -z "${HVD_CONTAINER_GROUP:-}" ]; then
    [ "$(id -u)" -eq 0 ] || skip_all root 'podman and mmdebstrap want to be root'
    for program in podman runc mmdebstrap; do
        command -v $program >/dev/null || skip_all $program 'it is not installed'
    done
    unshare --mount --pid --fork true 2>/dev/null ||
        skip_all namespaces 'no mount and pid namespaces here'

    group=hvd-test-$$
    # With the first process of the namespace goes all that is in it.
    # shellcheck disable=SC2317
    end_inner() {
        pkill -KILL --parent "$inner"
        wait "$inner"
        find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null
        # Gigabytes may take longer than a killed test is given: not a process of the test's.
        env -u HVD_TEST_MARK setsid --wait rm -rf "$TMP"
    }
    HVD_CONTAINER_GROUP=$group TMPDIR=$TMP \
        setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@" &
    inner=$!
    at_end+=(end_inner)
    # In the background, so that a signal to this shell is heard at once.
    rc=0
    wait "$inner" || rc=$?
    exit "$rc"
fi

cat >"$TMP/containers.conf" <<EOT
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4000:4000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
EOT
export CONTAINERS_CONF=$TMP/containers.conf
cat >"$TMP/storage.conf" <<EOT
[storage]
driver = "vfs"
graphroot = "$TMP/storage"
runroot = "$TMP/run"
EOT
export CONTAINERS_STORAGE_CONF=$TMP/storage.conf
container=hvd-test

# container_run ARGUMENT...: podman run of $container, in a control group that is found again
container_run() {
    podman run --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" --network=host "$@"
}

drop_container() {
    podman rm --force --ignore --time 0 "$container" >/dev/null 2>&1
}
at_end+=(drop_container)

# bare_debian12 FOLDER: a Debian 12 with git and make and nothing else
bare_debian12() {
    if ! mmdebstrap --quiet --mode=root --variant=minbase --include=git,make,ca-certificates bookworm \
        "$1" 2>"$TMP/mmdebstrap"; then
        tail -n 20 "$TMP/mmdebstrap"
        skip_all network 'mmdebstrap could not make Debian 12'
    fi
}

# show_failure LOG: what a make in the container said that failed
show_failure() {
    grep -E '^(FAIL|failed:) ' "$1"
    grep -A 60 '^FAIL ' "$1" | head -n 400
    tail -n 80 "$1"
}
