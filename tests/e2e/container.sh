# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# container.sh: podman for the tests in containers, sourced after common.sh: settings that work where
# control groups are of both versions and that leave the user's own alone; storage under $TMP.
# shellcheck disable=SC2154  # what common.sh sets

[ "$(id -u)" -eq 0 ] || skip_all root 'podman and mmdebstrap want to be root'
for program in podman runc mmdebstrap; do
    command -v $program >/dev/null || skip_all $program 'it is not installed'
done

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
container=hvd-$(basename "$0" .sh)-$$

drop_container() {
    podman rm --force --ignore "$container" >/dev/null 2>&1
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
