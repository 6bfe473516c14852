# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # used by, or set by, the script that sources it
#
# membership.sh: helpers for the tests of elastic jobs, sourced after hvdrun.sh. One job at a time, whose ranks only
# exchange control frames (ctl_elastic.py).
END=$TMP/end
RANKS="${PY:-/usr/bin/python3} $ROOT/tests/e2e/ctl_elastic.py $END"
job=0
prefix=() # words in front of hvdrun's command line

# begin OPTIONS...: starts an elastic job in the background, with its output in $TMP/out
begin() {
    rm -f "$END" "$END.hold"
    timeout 100 "${prefix[@]}" "$RUN" -v --doctor off "$@" >"$TMP/out" 2>&1 &
    job=$!
}

# finish CODE: waits for the job to end with that code and to leave nothing
finish() {
    local rc=0
    wait "$job" || rc=$?
    [ "$rc" -eq "$1" ] || { echo "exit code $rc, not $1"; cat "$TMP/out"; return 1; }
    nothing_left
}

# ends CODE: tells the ranks that the training is over, and waits for the job's end
ends() {
    touch "$END"
    finish "$1"
}

# line N PATTERN: waits at most 20 s for N lines that match
line() {
    wait_until 20 count_of "$1" "$2" "$TMP/out" && return 0
    echo "no $1 lines \"$2\" in:"
    cat "$TMP/out"
    return 1
}

# together N COMMAND...: COMMAND makes ranks join. They are held until N ranks in all have their numbers, and then enter in
# the same epoch: a rank that comes later than the others would get an epoch of its own.
together() {
    local n=$1 rc=0 letting
    shift
    touch "$END.hold"
    (line "$n" 'numbers: epoch'; rm "$END.hold") &
    letting=$!
    "$@" || rc=$?
    wait "$letting"
    return $rc
}

# ask PATH [BODY]: prints the answer of hvdrun's socket, and behind it the HTTP status
ask() {
    local dir
    dir=$(echo "$XDG_RUNTIME_DIR"/hvdrun-*)
    curl -s -w ' %{http_code}' ${2:+-d "$2"} --unix-socket "$dir/sock" \
        -H "Authorization: Bearer $(cat "$dir/token")" "http://x$1"
}

# answers PATH PATTERN: whether the answer of hvdrun's socket matches
answers() { ask "$1" | grep -q -- "$2"; }

# pid_of RANK: prints the rank's process id
pid_of() {
    ask /v1/status | "${PY:-/usr/bin/python3}" -c '
import json, sys
answer = json.JSONDecoder().raw_decode(sys.stdin.read())[0]
print([m["pid"] for m in answer["ranks"] if m["rank"] == int(sys.argv[1])][0])' "$1"
}

