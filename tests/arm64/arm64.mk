# SPDX-License-Identifier: Apache-2.0
# arm64: everything built for aarch64, and run under qemu-user as far as possible. See test_arm64.sh.

test-arm64:  ## cross-build for aarch64; unit tests, some multi-rank tests and the bundle under qemu-user (root)
	$(Q)tests/deps.sh build arm64
	$(Q)$(RUN) $(BUILD) tests/arm64/test_arm64.sh

.PHONY: test-arm64
