#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults in an elastic job for 90 s, and a check of the workers' records. Each run has a seed of its own, which it prints.
# The strict run first has two runs of units with seeds that are always the same.
# make chaos runs longer and with more faults (README.md).
# timeout: 900
# takes: 100 s, waiting
set -u
cd "$(dirname "$0")/../.." || exit 1
chaos=("${PY:-/usr/bin/python3}" tests/chaos/chaos.py "${BUILD:-build}" --max-bytes 4194304)
for seed in $([ "${HVD_TEST_STRICT:-0}" = 1 ] && echo 127 306); do
    "${chaos[@]}" --seconds 4 --scenario units --seed "$seed" || exit
done
exec "${chaos[@]}" --seconds "${CHAOS_SECONDS:-90}" \
    --scenario kill,middle,rank0,several,arrivals,phases,coordinator,units,mixed
