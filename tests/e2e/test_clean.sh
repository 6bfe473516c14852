#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a new user types, in turn, in a bare Debian 12 container: mmdebstrap, git clone of what is committed here, then
# make demo all install check uninstall. `make all` must not need what only `make test` installs, and `make uninstall` must
# leave nothing. make check must find all it needs among the packages of tests/deps.sh's group check. To take less time it
# runs without the multi-rank tests (MULTI_BINS=), and everything is compiled with -O0: the other builds of the run have
# the usual options. HVD_CLEAN_TARGETS names other targets, and then neither is left out. make test-clean adds "test".
# Downloads about 450 MB. Part of the strict run only.
# timeout: 5400
# takes: 700 s
# shellcheck disable=SC2154  # what common.sh and container.sh set
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh

bare_debian12 "$TMP/root"
container_run --detach --privileged --volume "$ROOT:/source:ro" --rootfs "$TMP/root" \
    sleep infinity >/dev/null || exit 1
podman exec "$container" git clone --quiet --config safe.directory='*' /source /hvd || exit 1

# files: lists the folders that install writes to. make check may install packages in between, whose files are under
# /usr and not under /usr/local.
files() {
    podman exec "$container" find /usr/local | LC_ALL=C sort
}

# after TARGET: what must hold once it has succeeded
after() {
    case $1 in
    install)
        podman exec "$container" sh -c 'cd / && hvdrun -np 2 --doctor=off /usr/bin/python3 -c "
import hvd
hvd.init()
assert hvd.size() == 2"'
        ;;
    uninstall) diff "$TMP/before" <(files) ;;
    esac
}

# The shorter run. In the environment CFLAGS is what the makefile adds to; as an argument it would be all flags.
flags=() left_out=()
if [ -z "${HVD_CLEAN_TARGETS:-}" ]; then
    HVD_CLEAN_TARGETS='demo all install check uninstall'
    flags=(--env CFLAGS=-O0) left_out=(MULTI_BINS=)
fi
for target in $HVD_CLEAN_TARGETS; do
    start=$SECONDS
    [ "$target" != install ] || files >"$TMP/before"
    if podman exec --workdir /hvd --env HVD_TEST_STRICT="${HVD_TEST_STRICT:-0}" --env HVD_CLEAN_INSIDE=1 "${flags[@]}" \
        ${HVD_FUZZ_SECONDS:+--env HVD_FUZZ_SECONDS="$HVD_FUZZ_SECONDS"} \
        "$container" make "$target" "${left_out[@]}" >"$TMP/log" 2>&1 && after "$target" >>"$TMP/log" 2>&1; then
        echo "ok make $target in a bare container ($((SECONDS - start)) s): $(tail -n 1 "$TMP/log")"
        grep -E '^(ok|FAIL|skip)  ' "$TMP/log"
    else
        echo "FAILED make $target in a bare container"
        show_failure "$TMP/log"
        failed=1
    fi
done
exit "$failed"
