#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README's two commands in a bare Debian 12 container: mmdebstrap, git clone of what is committed
# here, make demo, make test. Downloads about 700 MB and takes about 50 min on 2 cores: make test-clean,
# not part of make test. HVD_CLEAN_TARGETS names other targets ("demo test").
# timeout: 5400
# shellcheck disable=SC2154  # what common.sh and container.sh set
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh

bare_debian12 "$TMP/root"
container_run --detach --privileged --volume "$ROOT:/source:ro" --rootfs "$TMP/root" \
    sleep infinity >/dev/null || exit 1
podman exec "$container" git clone --quiet --config safe.directory='*' /source /hvd || exit 1
for target in ${HVD_CLEAN_TARGETS:-demo test}; do
    start=$SECONDS
    if podman exec --workdir /hvd --env HVD_TEST_STRICT="${HVD_TEST_STRICT:-0}" \
        ${HVD_FUZZ_SECONDS:+--env HVD_FUZZ_SECONDS="$HVD_FUZZ_SECONDS"} \
        "$container" make "$target" >"$TMP/log" 2>&1; then
        echo "ok make $target in a bare container ($((SECONDS - start)) s): $(tail -n 1 "$TMP/log")"
        grep -E '^(ok|FAIL|skip)  ' "$TMP/log"
    else
        echo "FAILED make $target in a bare container"
        show_failure "$TMP/log"
        failed=1
    fi
done
exit "$failed"
