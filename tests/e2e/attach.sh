# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # used by, or set by, the script that sources it
#
# attach.sh: helpers for the tests of hvdrun attach, sourced after membership.sh. One job at a time, named $NAME.
NAME=$MARK
HVDRUN_PID=0
killed=0
end_last() { kill -KILL "$HVDRUN_PID" 2>/dev/null; }
at_end+=(end_last)

# aside COMMAND...: runs a check whose own output is shown only if it fails, because $TMP/out belongs to hvdrun. Ends
# ranks that a failed check has left running.
aside() {
    local rc=0
    "$@" >"$TMP/aside" 2>&1 || rc=$?
    [ $rc -ne 0 ] && cat "$TMP/aside" >>"$TMP/out"
    end_last
    pgrep -f "ctl_elastic.py $END" | xargs -r kill -KILL 2>/dev/null
    return $rc
}

# begun N OPTION...: starts job $NAME and waits until its N ranks are in epoch 1. $HVDRUN_PID is its hvdrun.
begun() {
    local n=$1
    shift
    rm -f "$END" "$END.hold"
    "${prefix[@]}" "$RUN" -v --doctor off --name "$NAME" "$@" >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    line "$n" 'epoch 1 rank'
}

# lost: kills hvdrun. Its output stays in a file.
lost() {
    kill -KILL "$HVDRUN_PID" && { wait "$HVDRUN_PID" 2>/dev/null || true; }
    mv "$TMP/out" "$TMP/out.$((++killed))"
    : >"$TMP/out"
}

# attached: starts another hvdrun that takes the job over, with its output in $TMP/out
attached() {
    "${prefix[@]}" "$RUN" attach -v "$NAME" >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    line 1 "hvdrun: attached to job $NAME: "
}

# batches RANK: batches that the rank has finished, as its agent reports them
batches() {
    ask /v1/status | "${PY:-/usr/bin/python3}" -c '
import json, sys
answer = json.JSONDecoder().raw_decode(sys.stdin.read())[0]
print([m["batches"] for m in answer["ranks"] if m["rank"] == int(sys.argv[1])][0])' "$1"
}

no_rank_runs() { ! pgrep -f "ctl_elastic.py $END" >/dev/null; }

# diaries N: at least N ranks of tests/python/elastic_rank.py have recorded more than a few steps
diaries() { [ "$(find "$TMP/diary" -type f -size +1k | wc -l)" -ge "$1" ]; }

# recorded: bytes that ranks of tests/python/elastic_rank.py have recorded; recorded_beyond N: more than N
recorded() { cat "$TMP"/diary/* | wc -c; }
recorded_beyond() { [ "$(recorded)" -gt "$1" ]; }

# no_ranks SECONDS: all ranks end within that time, and hvdrun's directory is removed
no_ranks() {
    wait_until "$1" no_rank_runs || { pgrep -af "ctl_elastic.py $END"; return 1; }
    nothing_left
}
