# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # used by, and given by, who sources it
#
# attach.sh: what the tests of hvdrun attach share; sourced after membership.sh. One job at a time, $NAME.
NAME=$MARK
HVDRUN_PID=0
killed=0
end_last() { kill -KILL "$HVDRUN_PID" 2>/dev/null; }
at_end+=(end_last)

# aside COMMAND...: $TMP/out is hvdrun's; what the check itself says comes behind it when it failed. Ranks that
# a check has left are not the next one's.
aside() {
    local rc=0
    "$@" >"$TMP/aside" 2>&1 || rc=$?
    [ $rc -ne 0 ] && cat "$TMP/aside" >>"$TMP/out"
    end_last
    pgrep -f "ctl_elastic.py $END" | xargs -r kill -KILL 2>/dev/null
    return $rc
}

# begun N OPTION...: a job of that name with N ranks in epoch 1. $HVDRUN_PID is its hvdrun.
begun() {
    local n=$1
    shift
    rm -f "$END" "$END.hold"
    "${prefix[@]}" "$RUN" -v --doctor off --name "$NAME" "$@" >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    line "$n" 'epoch 1 rank'
}

# lost: hvdrun is killed. What it has said is kept.
lost() {
    kill -KILL "$HVDRUN_PID" && { wait "$HVDRUN_PID" 2>/dev/null || true; }
    mv "$TMP/out" "$TMP/out.$((++killed))"
    : >"$TMP/out"
}

# attached: another one takes over, its lines in $TMP/out
attached() {
    "${prefix[@]}" "$RUN" attach -v "$NAME" >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    line 1 "hvdrun: attached to job $NAME: "
}

# batches RANK: what it has finished, by itself: its agent's word
batches() {
    ask /v1/status | "${PY:-/usr/bin/python3}" -c '
import json, sys
answer = json.JSONDecoder().raw_decode(sys.stdin.read())[0]
print([m["batches"] for m in answer["ranks"] if m["rank"] == int(sys.argv[1])][0])' "$1"
}

no_rank_runs() { ! pgrep -f "ctl_elastic.py $END" >/dev/null; }

# diaries N: so many ranks of tests/python/elastic_rank.py have written down more than a few steps
diaries() { [ "$(find "$TMP/diary" -type f -size +1k | wc -l)" -ge "$1" ]; }

# no_ranks SECONDS: all ranks end within that time, and with them whatever hvdrun keeps
no_ranks() {
    wait_until "$1" no_rank_runs || { pgrep -af "ctl_elastic.py $END"; return 1; }
    nothing_left
}
