#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An elastic job to which bad things happen for 90 s, and the proof of what came of it. Each run has a seed of its
# own, which it prints; make chaos does this for longer and with more (README.md).
# timeout: 900
# takes: 100 s, waiting
set -u
cd "$(dirname "$0")/../.." || exit 1
exec "${PY:-/usr/bin/python3}" tests/chaos/chaos.py "${BUILD:-build}" --seconds "${CHAOS_SECONDS:-90}" \
    --scenario kill,middle,rank0,several,arrivals,phases,coordinator,mixed --max-bytes 4194304
