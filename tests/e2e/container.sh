# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# container.sh: podman for the tests in containers, sourced after common.sh. Its settings work with both versions of
# control groups and leave the user's own alone. Storage is under $TMP.
#
# The test runs twice: the outer run only waits and cleans up; the inner run, in mount and pid namespaces of its own,
# uses podman. What podman mounts and starts ends with these namespaces, even if the test is killed. The inner run's
# $TMP lies in the outer one's.
# shellcheck disable=SC2154  # what common.sh sets

if [ -z "${HVD_CONTAINER_GROUP:-}" ]; then
    [ "$(id -u)" -eq 0 ] || skip_all root 'podman and mmdebstrap want to be root'
    for program in podman runc mmdebstrap; do
        command -v $program >/dev/null || skip_all $program 'it is not installed'
    done
    unshare --mount --pid --fork true 2>/dev/null ||
        skip_all namespaces 'no mount and pid namespaces here'

    group=hvd-test-$$
    # The first process of the namespace takes all others with it.
    # shellcheck disable=SC2317
    end_inner() {
        pkill -KILL --parent "$inner"
        wait "$inner"
        find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null
        # Removing gigabytes may outlast the grace time of a killed test, so it runs outside of the test's processes.
        env -u HVD_TEST_MARK setsid --wait rm -rf "$TMP"
    }
    HVD_CONTAINER_GROUP=$group TMPDIR=$TMP \
        setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@" &
    inner=$!
    at_end+=(end_inner)
    # In the background, so that this shell handles a signal at once.
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

# container_run ARGUMENT...: podman run of $container, in a control group with a known name
container_run() {
    podman run --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" --network=host "$@"
}

drop_container() {
    podman rm --force --ignore --time 0 "$container" >/dev/null 2>&1
}
at_end+=(drop_container)

# bare_debian12 FOLDER: a root file system of Debian 12 with git and make only
bare_debian12() {
    if ! mmdebstrap --quiet --mode=root --variant=minbase --include=git,make,ca-certificates bookworm \
        "$1" 2>"$TMP/mmdebstrap"; then
        tail -n 20 "$TMP/mmdebstrap"
        skip_all network 'mmdebstrap could not make Debian 12'
    fi
}

# show_failure LOG: the lines that explain a failed make in the container
show_failure() {
    grep -E '^(FAIL|failed:) ' "$1"
    grep -A 60 '^FAIL ' "$1" | head -n 400
    tail -n 80 "$1"
}
