#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How a rank's process may end, in a fixed and in an elastic job: the rows of README's table "When a rank ends". Which
# rank hvdrun names, its exit code, which rank is replaced. All rows of a kind of job run at the same time.
# timeout: 300
# takes: 13 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
PY=${PY:-/usr/bin/python3}
HVD_LIBRARY=$BUILD/libhvd.so
PYTHONPATH=$ROOT/core/python
export HVD_LIBRARY PYTHONPATH PYTHONDONTWRITEBYTECODE=1 HVD_DOCTOR=off

# start KIND WAY REPLACED OPTION...: starts a job in the background; its output and exit code are in $TMP/KIND-WAY.*
start() {
    local run=$TMP/$1-$2 way=$2
    export ENDS_REPLACED=$3
    shift 3
    mkdir "$run"
    {
        timeout -k 5 120 "$RUN" -np 3 "$@" "$PY" tests/e2e/ends_rank.py "$way" "$run" >"$run.out" 2>"$run.err"
        echo $? >"$run.code"
    } &
}

# ended KIND WAY CODE PATTERN...: the job ended with that code, and hvdrun's own lines have the patterns in this order
ended() {
    local run=$TMP/$1-$2 want=$3 line=0 at pattern
    shift 3
    grep '^hvdrun: ' "$run.err" >"$run.said"
    if [ "$(cat "$run.code")" -ne "$want" ]; then
        echo "exit code $(cat "$run.code"), not $want"
        cat "$run.err" "$run.out"
        return 1
    fi
    for pattern in "$@"; do
        at=$(tail -n +$((line + 1)) "$run.said" | grep -n -m 1 -- "$pattern") ||
            { echo "no \"$pattern\" behind line $line of:"; cat "$run.said" "$run.err"; return 1; }
        line=$((line + ${at%%:*}))
    done
}

# first KIND WAY CODE PATTERN...: like ended, and the first line has the first pattern
first() {
    grep '^hvdrun: ' "$TMP/$1-$2.err" | head -n 1 | grep -q -- "$4" ||
        { echo "the first line has no \"$4\""; cat "$TMP/$1-$2.err"; return 1; }
    ended "$@"
}

# followed WAY PATTERN: hvdrun names the rank of that pattern first; its exit code is that of a rank that failed because
# of it
followed() {
    first fixed "$1" 1 "rank 1 on localhost (pid [0-9]*) $2 while other ranks still worked with it" \
        'because of that, rank [02] on localhost (pid [0-9]*) exited with code 1'
}

fixed_ways="return exit-n exit-text exception finally shutdown-exit-n shutdown-live os-exit-0 os-exit-n signal kill"
for way in $fixed_ways; do
    start fixed "$way" no
done
wait
check fixed-return followed return 'exited with code 0'
check fixed-exit-n first fixed exit-n 3 'rank 1 .* exited with code 3'
check fixed-exit-text first fixed exit-text 1 'rank 1 .* exited with code 1' '  no data'
check fixed-exception first fixed exception 1 'rank 1 .* exited with code 1' 'ValueError: a reason'
check fixed-finally first fixed finally 1 'rank 1 .* exited with code 1' 'ValueError: a reason'
check fixed-shutdown-exit-n first fixed shutdown-exit-n 3 'rank 1 .* exited with code 3'
check fixed-shutdown-live followed shutdown-live 'called hvd_shutdown()'
check fixed-os-exit-0 followed os-exit-0 'left early: it exited without hvd_shutdown()'
check fixed-os-exit-n first fixed os-exit-n 3 'rank 1 .* exited with code 3'
check fixed-signal first fixed signal 139 'rank 1 .* was ended by signal 11'
check fixed-kill first fixed kill 137 'rank 1 .* was ended by signal 9'

# elastic_end WAY SIZES PATTERN: an elastic job that ends with 0; the line of epoch 2 names rank 1. That line waits half
# a second for the exit code: on a busy machine it may lack it.
elastic_end() {
    ended elastic "$1" 0 "epoch 2: 2 of [23] ranks .*: rank 1 on localhost (pid [0-9]*) \($3\|died\|called hvd_shutdown()\)" &&
        says "sizes $2\$" "$TMP/elastic-$1.out"
}
not_replaced() {
    elastic_end "$1" '3 2' "$2" && ! grep 'member 3 is started' "$TMP/elastic-$1.err"
}
replaced() {
    elastic_end "$1" '3 2 3' "$2" && says 'member 3 is started' "$TMP/elastic-$1.err"
}

for way in return shutdown-live os-exit-0; do
    start elastic "$way" no -v --min-np 1
done
for way in exit-n exit-text exception finally shutdown-exit-n os-exit-n signal kill; do
    start elastic "$way" yes -v --min-np 1
done
for way in last-exit-n last-kill last-return; do
    start elastic "$way" no --min-np 1
done
wait
check elastic-return not_replaced return 'exited with code 0'
check elastic-shutdown-live not_replaced shutdown-live 'called hvd_shutdown()'
check elastic-os-exit-0 not_replaced os-exit-0 'left early'
check elastic-exit-n replaced exit-n 'exited with code 3'
check elastic-exit-text replaced exit-text 'exited with code 1'
check elastic-exception replaced exception 'exited with code 1'
check elastic-finally replaced finally 'exited with code 1'
check elastic-shutdown-exit-n replaced shutdown-exit-n 'exited with code 3'
check elastic-os-exit-n replaced os-exit-n 'exited with code 3'
check elastic-signal replaced signal 'was ended by signal 11'
check elastic-kill replaced kill 'was ended by signal 9'
# The victim ends after the last step of all ranks: no rank would train with a replacement.
check elastic-last-return ended elastic last-return 0
check elastic-last-exit-n ended elastic last-exit-n 3 'rank 1 .* exited with code 3'
check elastic-last-kill ended elastic last-kill 137 'rank 1 .* was ended by signal 9'
check nothing-left nothing_left
exit $failed
