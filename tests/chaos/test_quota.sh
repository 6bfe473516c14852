#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Four ranks, their agent and hvdrun share half a processor: no rank is treated as lost, and there is only one epoch.
# make chaos-throttle runs longer.
# timeout: 300
# takes: 15 s, waiting
set -u
cd "$(dirname "$0")/../.." || exit 1
exec "${PY:-/usr/bin/python3}" tests/chaos/chaos.py "${BUILD:-build}" --seconds "${CHAOS_SECONDS:-15}" --scenario quota
