#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make test as an ordinary user in a container without any capability: no root, no namespaces, no right to install. The
# packages are installed already: make deps must see that and print nothing. Every test passes or says what it lacks.
# Downloads about 700 MB and takes about 50 min on 2 cores. Part of make test-clean.
# timeout: 5400
# shellcheck disable=SC2154,SC2317,SC2016  # what common.sh and container.sh set; called by check; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh

bare_debian12 "$TMP/root"
# Prepared as an image would be: root installs, the user clones.
cat >"$TMP/root/prepare" <<'EOT'
set -e
useradd --create-home --uid 1000 --shell /bin/bash user
git clone --quiet --config safe.directory='*' /source /home/user/hvd
chown -R user:user /home/user
make --directory=/home/user/hvd deps
EOT
if ! container_run --rm --volume "$ROOT:/source:ro" --rootfs "$TMP/root" \
    bash /prepare >"$TMP/log" 2>&1; then
    tail -n 40 "$TMP/log"
    skip_all network 'the packages could not be installed'
fi

# Refuses namespaces, as Docker and Kubernetes do without CAP_SYS_ADMIN. Podman's own profile allows them.
cat >"$TMP/seccomp.json" <<'EOT'
{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["unshare", "setns", "mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
    {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
     "args": [{"index": 0, "value": 268435456, "op": "SCMP_CMP_MASKED_EQ",
               "valueTwo": 268435456}]},
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}
EOT

as_user() { # COMMAND: in the clone
    container_run --rm --cap-drop=all --user 1000:1000 --security-opt=no-new-privileges \
        --security-opt="seccomp=$TMP/seccomp.json" \
        --env HOME=/home/user --workdir /home/user/hvd \
        ${HVD_FUZZ_SECONDS:+--env HVD_FUZZ_SECONDS="$HVD_FUZZ_SECONDS"} \
        --rootfs "$TMP/root" bash -c "$1"
}

# The container must really be confined, otherwise this test proves nothing.
nothing_allowed() {
    as_user 'cd / && ! unshare --net true && ! unshare --user true && [ "$(id -u)" = 1000 ] &&
        grep "^CapEff:[[:space:]]*0*$" /proc/self/status && ! command -v sudo'
}

deps_are_silent() {
    local said
    said=$(as_user 'make deps' 2>&1)
    echo "$said"
    # Each user has nvcc in a folder of his own, and it may not be available.
    ! grep -qv -e '^deps: no nvcc ' -e '^deps: fetching nvcc' -e '^$' <<<"$said"
}

check 'nothing is allowed' nothing_allowed
check 'make deps has nothing to do' deps_are_silent
start=$SECONDS
if as_user 'make test' >"$TMP/log" 2>&1; then
    echo "ok make test without privileges ($((SECONDS - start)) s): $(tail -n 1 "$TMP/log")"
    grep '^SKIP: ' "$TMP/log" | sed 's/^SKIP: /skipped there: /' | sort -u
else
    echo 'FAILED make test without privileges'
    show_failure "$TMP/log"
    failed=1
fi
check 'nothing is left in /tmp' bash -c "! ls -A '$TMP/root/tmp' | grep ."
exit "$failed"
