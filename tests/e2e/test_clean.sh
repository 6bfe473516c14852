#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README's two commands in a bare Debian 12 container: mmdebstrap, git clone of what is committed
# here, make demo, make test. Downloads about 700 MB and takes half an hour: make test-clean, not part
# of make test. HVD_CLEAN_TARGETS names other targets ("demo test").
# timeout: 5400
# shellcheck disable=SC2154  # what common.sh and container.sh set
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. tests/e2e/container.sh

bare_debian12 "$TMP/root"
podman run --detach --name "$container" --privileged --network=host --volume "$ROOT:/source:ro" \
    --rootfs "$TMP/root" sleep infinity >/dev/null || exit 1
podman exec "$container" git clone --quiet --config safe.directory='*' /source /hvd || exit 1
for target in ${HVD_CLEAN_TARGETS:-demo test}; do
    start=$SECONDS
    if podman exec "$container" bash -c \
        "cd /hvd && HVD_TEST_STRICT=${HVD_TEST_STRICT:-0} make $target" >"$TMP/log" 2>&1; then
        echo "ok make $target in a bare container ($((SECONDS - start)) s): $(tail -n 1 "$TMP/log")"
    else
        echo "FAILED make $target in a bare container"
        grep -A 40 '^FAIL ' "$TMP/log"
        tail -n 80 "$TMP/log"
        failed=1
    fi
done
exit "$failed"
