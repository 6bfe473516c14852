#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults in an elastic job for 90 s, and a check of the workers' records. Each run has a seed of its own, which it prints.
# make chaos runs longer and with more faults (README.md).
# timeout: 900
# takes: 100 s, waiting
set -u
cd "$(dirname "$0")/../.." || exit 1
exec "${PY:-/usr/bin/python3}" tests/chaos/chaos.py "${BUILD:-build}" --seconds "${CHAOS_SECONDS:-90}" \
    --scenario kill,middle,rank0,several,arrivals,phases,coordinator,mixed --max-bytes 4194304
