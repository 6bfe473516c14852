#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# images/Containerfile: built from this commit on a bare Debian 12, then run as a cluster runs it: an ordinary user, no
# capability, a read-only root file system, no network. Downloads about 500 MB. Part of make test-clean, not of make test.
# timeout: 3600
# shellcheck disable=SC2154,SC2317,SC2016  # what common.sh and container.sh set; called by check; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh

bare_debian12 "$TMP/root"
mkdir "$TMP/source" && git -c safe.directory='*' archive HEAD | tar -x -C "$TMP/source" || exit 1
tar -C "$TMP/root" -c . | podman import - localhost/hvd-test-base >"$TMP/log" 2>&1 || {
    cat "$TMP/log"
    exit 1
}
rm -rf "$TMP/root"
start=$SECONDS
if podman build --layers=false --network=host --cgroup-parent="/$HVD_CONTAINER_GROUP" \
    --build-arg BASE=localhost/hvd-test-base --tag localhost/hvd-test --file images/Containerfile \
    "$TMP/source" >"$TMP/log" 2>&1; then
    echo "ok build ($((SECONDS - start)) s)"
else
    tail -n 60 "$TMP/log"
    grep -q 'Temporary failure\|Unable to fetch\|Failed to fetch' "$TMP/log" &&
        skip_all network 'the packages could not be installed'
    exit 1
fi

# Mounted as a folder, because the storage driver would copy the whole image for each container.
image=$(podman image mount localhost/hvd-test) || exit 1

# confined PODMAN-OPTION... -- COMMAND...
confined() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    timeout 120 podman run --rm --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" --network=none \
        --user 1000:1000 --cap-drop=all --security-opt=no-new-privileges --read-only "${options[@]}" \
        --rootfs "$image" "$@"
}

# The container must really be confined, otherwise the other checks prove nothing.
nothing_allowed() {
    confined -- sh -c '[ "$(id -u)" = 1000 ] && grep "^CapEff:[[:space:]]*0*$" /proc/self/status &&
        ! touch /etc/x /usr/x /x'
}

program='
import sys, torch, hvd.torch as hvd
hvd.init()
model = torch.nn.Linear(3, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), 0)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(2, 3) * hvd.rank()).sum().backward()
    optimizer.step()
same = hvd.allgather_object(model.weight.detach().numpy().tobytes())
sys.exit(0 if hvd.size() == 2 and same[0] == same[1] else 3)'

trains() {
    confined "$@" -- hvdrun -np 2 python3 -c "$program"
}

# Trains with the smallest /dev/shm and no writable folder.
trains_anywhere() {
    trains --shm-size=64k && trains --read-only-tmpfs=false
}

complete() {
    confined -- hvdrun --check-build && confined -- hvdrun --version &&
        confined -- sh -c 'for p in hvdrun hvd-agent hvd-doctor hvd-probe; do
            ldd "/usr/bin/$p" | grep "not found" && exit 1; done; exit 0'
}

doctor() {
    confined -- hvd-doctor check || [ $? -le 1 ]
}

failing_rank() {
    local rc=0
    confined -- hvdrun -np 2 sh -c 'exit $((HVD_RANK * 7))' >"$TMP/said" 2>&1 || rc=$?
    cat "$TMP/said"
    [ "$rc" -eq 7 ] && grep -q 'exited with code 7' "$TMP/said"
}

check 'nothing is allowed' nothing_allowed
check 'complete' complete
check 'training' trains
check 'training where nothing can be written' trains_anywhere
check 'a failing rank' failing_rank
check 'the doctor' doctor
exit "$failed"
