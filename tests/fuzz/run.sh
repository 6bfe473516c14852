#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD NOUN SECONDS: runs fuzz_NOUN for so long, from its seeds. New inputs stay in BUILD. Prints one line, and
# the whole log after a crash.
set -u
build=$1 noun=$2 seconds=$3
seeds=tests/fuzz/corpus/$noun work=$build/corpus/$noun log=$build/log/$noun.log
mkdir -p "$work" "$build/log" "$build/crash"
dirs=("$work")
[ -d "$seeds" ] && dirs+=("$seeds")
if "$build/tests/fuzz/fuzz_$noun" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
    -max_len=65536 -artifact_prefix="$build/crash/$noun-" -print_final_stats=1 "${dirs[@]}" \
    >"$log" 2>&1; then
    echo "fuzz $noun: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, no finding"
else
    tail -n 60 "$log"
    for input in "$build/crash/$noun-"*; do
        [ -f "$input" ] && echo "fuzz $noun: $input, in base64: $(head -c 3000 "$input" | base64 -w 0)"
    done
    echo "fuzz $noun: FAILED, input in $build/crash"
    exit 1
fi
