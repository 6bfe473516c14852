#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A discovery script while a job runs: hosts that come, go and return, slots that change, scripts that fail, hosts that
# cannot be reached or whose agent is killed. 127.0.0.2 stands for another host: a script in place of ssh runs its agent
# here.
# timeout: 300
# takes: 30 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"

export CTL_SECONDS=250
# With this heartbeat hvdrun does not treat an agent of the other host as lost when that agent gets no processor for half
# a second.
export HVD_HEARTBEAT_MS=1000
export HVD_RUN_DIR=$XDG_RUNTIME_DIR
export HVD_RSH_AGENT=$TMP/rsh
job=

# The first argument is the host. The host "silent" never answers. The host named in the file "down" cannot be reached.
cat >"$TMP/rsh" <<SH
#!/bin/sh
[ "\$1" != silent ] || exec sleep 100
[ "\$(cat '$TMP/down' 2>/dev/null)" != "\$1" ] || { echo 'no route to it' >&2; exit 255; }
echo \$\$ >'$TMP/agent'
shift
exec "\$@"
SH
chmod +x "$TMP/rsh"

end_job() {
    [ -z "$job" ] || kill -KILL "$job" 2>/dev/null
}
at_end+=(end_job)

# script LINE...: replaces the script from now on
script() {
    printf '#!/bin/sh\necho >>%s\n' "$TMP/asked" >"$TMP/hosts.new"
    printf '%s\n' "$@" >>"$TMP/hosts.new"
    chmod +x "$TMP/hosts.new" && mv "$TMP/hosts.new" "$TMP/hosts"
}

# names HOST...: makes the script print these hosts
names() {
    script "cat <<X" "$@" X
}

# asked_twice: waits for two more runs of the script, so that the output of the first one has been applied
asked_twice() {
    local before
    before=$(wc -l <"$TMP/asked")
    wait_until 30 count_of $((before + 2)) '' "$TMP/asked" || { echo "the script is not asked"; return 1; }
}

world() {
    "$RUN" status d --json 2>"$TMP/2" | "${PY:-/usr/bin/python3}" -c '
import json, sys
s = json.loads(sys.stdin.read() or "{\"ranks\": []}")
print(*[r["host"] for r in sorted(s["ranks"], key=lambda r: r["rank"]) if r["rank"] >= 0 and r["state"] == "active"])'
}

world_is() { [ "$(world)" = "$*" ]; }

# until_world HOST...: waits until the ranks, in order, are on these hosts
until_world() {
    wait_until 30 world_is "$@" && return 0
    echo "the world is: $(world)"
    "$RUN" status d -v
    cat "$TMP/err"
    return 1
}

until_said() {
    wait_until 15 grep -q -- "$1" "$TMP/err" && return 0
    says "$1" "$TMP/err"
}

begins() {
    names localhost:2
    "$RUN" -v --doctor off --name d --min-np 2 --max-np 5 --host-discovery-script "$TMP/hosts" \
        "${PY:-/usr/bin/python3}" "$ROOT/tests/e2e/ctl_elastic.py" "$TMP/end" >"$TMP/1" 2>"$TMP/err" &
    job=$!
    until_world localhost localhost
}

comes() {
    names localhost:2 127.0.0.2:2
    until_world localhost localhost 127.0.0.2 127.0.0.2
}

# A host is drained and the ranks elsewhere train on. Then the host returns.
goes_and_returns() {
    names localhost:2
    until_world localhost localhost && until_said 'host 127.0.0.2 was drained; 2 ranks left as asked' || return 1
    names localhost:2 127.0.0.2:1
    until_world localhost localhost 127.0.0.2
}

slots() {
    names localhost:3 127.0.0.2:1
    until_world localhost localhost 127.0.0.2 localhost || return 1
    names localhost:1 127.0.0.2:1
    until_world localhost 127.0.0.2 || return 1
    names localhost:1 127.0.0.2:9 # more than --max-np
    until_world localhost 127.0.0.2 127.0.0.2 127.0.0.2 127.0.0.2
}

# Each error is printed once, and the hosts stay as they were.
troubles() {
    local n
    n=$("$RUN" status d --json | grep -o '"epoch":[0-9]*')
    script 'exit 4'
    until_said "host discovery script $TMP/hosts: exit code 4: the hosts stay as they were" || return 1
    names localhost:1 127.0.0.2:9
    asked_twice || return 1
    script 'echo localhost:2; echo "Traceback (most recent call last):"'
    until_said 'line 2: .*: the hosts stay as they were' || return 1
    asked_twice || return 1
    [ "$(grep -c 'stay as they were' "$TMP/err")" -eq 2 ] || return 1
    names # an empty output: no host is drained
    asked_twice || return 1
    [ "$(grep -c 'stay as they were' "$TMP/err")" -eq 2 ] || return 1
    names localhost:1 127.0.0.2:9
    [ "$("$RUN" status d --json | grep -o '"epoch":[0-9]*')" = "$n" ] && kill -0 "$job"
}

# The script no longer names a host without which the job would be below its minimum: no rank is drained.
below_min() {
    names localhost:1
    until_said 'the discovery script does not name host 127.0.0.2 any more, but its ranks stay: .* less than the job.s minimum of 2' || return 1
    "$RUN" status d >"$TMP/2" && says '5 of 5 ranks (2 to 5)' "$TMP/2" && names localhost:1 127.0.0.2:9
}

# The agent of a host dies: its ranks are lost, the others train on, and the host is tried again.
agent_lost() {
    names localhost:2 127.0.0.2:2
    until_world localhost 127.0.0.2 127.0.0.2 localhost || until_world localhost 127.0.0.2 127.0.0.2 || return 1
    kill -KILL "$(cat "$TMP/agent")" || return 1
    until_said 'epoch .* 127.0.0.2' && until_world localhost localhost 127.0.0.2 127.0.0.2
}

# An unreachable host is reported, and tried until it can be reached.
unreachable() {
    echo 127.0.0.3 >"$TMP/down"
    names localhost:2 127.0.0.2:2 127.0.0.3:1
    until_said 'host 127.0.0.3: .* ended with code 255 before its agent joined: no route to it' || return 1
    "$RUN" status d | grep -q '^d: .* [45] ranks' && kill -0 "$job" || return 1
    rm "$TMP/down"
    until_world localhost localhost 127.0.0.2 127.0.0.2 127.0.0.3
}

ends() {
    local rc=0
    touch "$TMP/end"
    wait "$job" || rc=$?
    job=
    [ "$rc" -eq 0 ] || { echo "exit code $rc"; cat "$TMP/err"; return 1; }
    nothing_left && ! pgrep -f "$TMP" >/dev/null
}

# without HOST PATTERN COMMAND...: one of two hosts does not come. The other one has room for the minimum: the job runs
# there, says so, and ends well.
without() {
    local host=$1 pattern=$2 rc=0
    shift 2
    echo 127.0.0.3 >"$TMP/down"
    timeout 50 "$RUN" -v --doctor off --start-timeout 2 --name without -H "localhost:1,$host:1" -np 2 --min-np 1 "$@" \
        >"$TMP/1" 2>"$TMP/2" || rc=$?
    rm "$TMP/down"
    [ "$rc" -eq 0 ] || { echo "exit code $rc"; cat "$TMP/1" "$TMP/2"; return 1; }
    says "$pattern" "$TMP/2"
}

# trains HOST PATTERN: like without, with a rank that ends once it has been alone in epoch 1
trains() {
    printf '%s\n' "until grep -q 'epoch 1 rank 0 of 1' $TMP/1; do sleep 0.1; done; touch $TMP/end.first" >"$TMP/trains"
    sh "$TMP/trains" &
    without "$@" "${PY:-/usr/bin/python3}" "$ROOT/tests/e2e/ctl_elastic.py" "$TMP/end.first" && rm "$TMP/end.first"
}

# Fewer ranks than the minimum are left: the job fails, as a fixed one does.
unreachable_and_needed() {
    echo 127.0.0.3 >"$TMP/down"
    code 1 "$RUN" --doctor off -H "localhost:1,127.0.0.3:1" -np 2 --min-np 2 true 2>"$TMP/2"
    local rc=$?
    rm "$TMP/down"
    [ "$rc" -eq 0 ] && says 'host 127.0.0.3: .* before its agent joined: no route to it' "$TMP/2"
}

# hvdrun does not wait for the agent of a drained host.
drained_before_it_joins() {
    printf '%s\n' "until '$RUN' drain without silent; do sleep 0.2; done; touch $TMP/end.first" >"$TMP/drains"
    sh "$TMP/drains" >"$TMP/3" 2>&1 &
    without silent 'host silent was drained before its agent joined' --start-timeout 40 \
        "${PY:-/usr/bin/python3}" "$ROOT/tests/e2e/ctl_elastic.py" "$TMP/end.first" || { cat "$TMP/3"; return 1; }
    rm "$TMP/end.first"
}

check unreachable-at-the-start trains 127.0.0.3 'host 127.0.0.3: .* ended with code 255 before its agent joined: no route to it'
check silent-at-the-start trains silent 'host silent: its agent has not joined within 2 s: treated as lost'
check unreachable-and-a-plain-command without 127.0.0.3 'host 127.0.0.3: .* before its agent joined' true
check unreachable-and-needed unreachable_and_needed
check drained-before-it-joins drained_before_it_joins
check begins begins
check comes comes
check goes-and-returns goes_and_returns
check slots slots
check troubles troubles
check below-min below_min
check agent-lost agent_lost
check unreachable unreachable
check ends ends
exit $failed
