#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank that joins an elastic job starts up while the others train: slow, dead before admission, no longer wanted, under
# another hvdrun, and in a program without a boundary.
# timeout: 400
# takes: 40 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
PY=${PY:-/usr/bin/python3}
HVD_LIBRARY=$BUILD/libhvd.so
PYTHONPATH=$ROOT/core/python
export HVD_LIBRARY PYTHONPATH PYTHONDONTWRITEBYTECODE=1 HVD_DOCTOR=off
JOINER=tests/python/elastic_joiner.py
HVDRUN_PID=0
end_last() { kill -KILL "$HVDRUN_PID" 2>/dev/null; }
at_end+=(end_last)

# begun HOW OPTION...: starts hvdrun in the background, with its output in $TMP/log
begun() {
    local how=$1
    shift
    rm -rf "$TMP/diary"
    mkdir "$TMP/diary"
    : >"$TMP/log"
    "$RUN" --name "$MARK" --no-prefix "$@" "$PY" "$JOINER" "$TMP/diary" "$how" >>"$TMP/log" 2>&1 &
    HVDRUN_PID=$!
}

# line PATTERN: waits until the job has printed it
line() {
    wait_until 60 grep -q -- "$1" "$TMP/log" && return
    echo "no \"$1\" in:"
    cat "$TMP/log"
    return 1
}

status_says() { "$RUN" status "$MARK" >"$TMP/status" && grep -q -- "$1" "$TMP/status"; }

nobody_leaves() { "$RUN" status "$MARK" >"$TMP/status" && ! grep leaving "$TMP/status"; }

# ends CODE: the job ends with that code, without warnings or errors in its output
ends() {
    local rc=0
    wait "$HVDRUN_PID" || rc=$?
    cat "$TMP/log"
    if grep 'Traceback\|waiting for ranks to begin with\|left early\|lost touch' "$TMP/log"; then
        return 1
    fi
    [ "$rc" -eq "$1" ]
}

# proved: the ranks' records show that the other ranks trained on while the joiner started up
proved() {
    "$PY" "$JOINER" check "$TMP/diary" | tee "$TMP/proof" && cat "$TMP/proof" >>"$TMP/shown"
}

slow() {
    begun 6 -np 3 --min-np 2
    line 'place 2 of 3, local rank 1' || return 1
    "$RUN" status "$MARK" | tee "$TMP/status" | grep -q ' starting$' || { cat "$TMP/status" && return 1; }
    ends 0 && proved && says 'epoch 3: 3 of 3 ranks after .*: 1 rank joined' "$TMP/log"
}

dies() {
    begun die -np 3 --min-np 2
    ends 0 && proved && says 'hvdrun: member 3 on localhost (pid [0-9]*) \(died\|was ended by signal 9\)' "$TMP/log" &&
        says 'epoch 3: 3 of 3 ranks after .*: 1 rank joined' "$TMP/log"
}

# The target shrinks while a joiner starts up. When the joiner asks for admission, it is told to leave.
shrinks() {
    begun 3 -np 3 --min-np 2
    line 'place 2 of 3' && "$RUN" scale "$MARK" 2 || return 1
    line 'hvdrun: member 3 leaves: the job is to be smaller' || return 1
    # The joiner asks for admission, is told to leave, and ends.
    wait_until 20 nobody_leaves || return 1
    "$RUN" scale "$MARK" 3 && ends 0
}

# hvdrun is killed while a joiner starts up, and another hvdrun takes over.
attached() {
    begun 5 -np 3 --min-np 2
    line 'place 2 of 3' || return 1
    kill -KILL "$HVDRUN_PID" && { wait "$HVDRUN_PID" 2>/dev/null || true; }
    "$RUN" attach "$MARK" >>"$TMP/log" 2>&1 &
    HVDRUN_PID=$!
    ends 0 && proved
}

# A program without a boundary: the replacement waits, and is told why it waited in vain.
never() {
    begun plain -np 3 --min-np 2
    line 'place 2 of 3' || return 1
    wait_until 60 status_says 'ready to enter'
    touch "$TMP/diary/enough"
    ends 0 && says 'the end after [0-9]* steps' "$TMP/log" &&
        says 'hvdrun: member 3 leaves: the job ends; it was ready for admission for .* no step boundary' "$TMP/log"
}

# The job ends while a joiner still starts up.
too_late() {
    begun 60 -np 3 --min-np 2
    line 'place 2 of 3' && touch "$TMP/diary/enough" || return 1
    ends 0 && says 'hvdrun: member 3 leaves: the job ends before it was ready for admission' "$TMP/log"
}

check slow-joiner slow
check dies-before-it-is-in dies
check not-wanted-any-more shrinks
check another-hvdrun attached
check no-boundary never
check the-end-comes-first too_late
check nothing-left nothing_left
cat "$TMP/shown" 2>/dev/null
exit $failed
