#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun over two hosts, which are network namespaces that HVD_RSH_AGENT reaches: TLS, output, ends.
# timeout: 900
# takes: 20 s, waiting
# shellcheck disable=SC2317,SC2016,SC2154,SC2086  # functions that check calls; words for other shells; common.sh; $CTL is two words
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

can_netns || skip_all netns "cannot make network namespaces (root and iproute2)"
make_hosts || exit 1

# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
A=${hosts[0]} B=${hosts[1]}
export HVD_RSH_AGENT="ip netns exec"

# two RANKS COMMAND...: half of the ranks on host A, where hvdrun is, half on B
two() {
    local n=$1
    shift
    on "$A" "$RUN" -np "$n" -H "localhost:$((n / 2)),$B:$((n / 2))" "$@"
}

# sleepers: starts two ranks that sleep, in the background; $! is hvdrun
sleepers() {
    ip netns exec "$A" "$RUN" -np 2 -H "localhost:1,$B:1" bash -c "exec -a $MARK sleep 60" 2>"$TMP/2" &
}

control_frames() {
    code 0 two 4 $CTL >"$TMP/1" && [ "$(grep -c 'ok size 4 local 2' "$TMP/1")" -eq 4 ]
}

real_ranks() {
    [ -x "$SUM" ] || { echo "no $SUM"; return 1; }
    code 0 two 4 "$SUM" 3 2
}

# Variables of ranks on both hosts. Another host gets HVD_*, PYTHON* and -x, and no others.
environment() {
    HVD_SEEN=1 PYTHONSEEN=1 GIVEN=1 HIDDEN=1 code 0 two 4 -x GIVEN -x SET=2 sh -c '
        echo $HVD_RANK $HVD_LOCAL_RANK $HVD_LOCAL_SIZE $HVD_CROSS_RANK $HVD_CROSS_SIZE $HVD_SEEN$PYTHONSEEN$GIVEN$SET' \
        >"$TMP/1" && [ "$(sort "$TMP/1" | sed 's/.*://' | tr '\n' ,)" = "0 0 2 0 2 1112,1 1 2 0 2 1112,2 0 2 1 2 1112,3 1 2 1 2 1112," ]
}

# The ranks run in the namespaces of their hosts.
places() {
    two 2 --no-prefix sh -c 'ip -4 -o addr show veth0' >"$TMP/1" &&
        says 10.213.7.1 "$TMP/1" && says 10.213.7.2 "$TMP/1"
}

listens_narrowly() {
    sleepers
    local pid=$! rc=0
    until_marked 2
    on "$A" ss -Htln >"$TMP/listen"
    [ "$(wc -l <"$TMP/listen")" -eq 1 ] && says 10.213.7.1: "$TMP/listen" || rc=1
    # A stranger gets no TLS without the job's CA, and no answer without the token.
    local port
    port=$(sed -n 's/.*10.213.7.1:\([0-9]*\).*/\1/p' "$TMP/listen")
    if command -v curl >/dev/null; then
        on "$B" curl -s "https://10.213.7.1:$port/v1/status" && rc=1
        [ "$(on "$B" curl -sk -o /dev/null -w '%{http_code}' "https://10.213.7.1:$port/v1/status")" = 401 ] || rc=1
    fi
    kill -TERM $pid
    wait $pid
    [ $rc -eq 0 ] && nothing_left
}

failure_there() {
    code 4 two 2 bash -c "[ \$HVD_RANK = 1 ] && echo why >&2 && exit 4; exec -a $MARK sleep 60" 2>"$TMP/2" &&
        says "rank 1 on $B (pid [0-9]*) exited with code 4" "$TMP/2" && says 'hvdrun:   why' "$TMP/2" && nothing_left
}

died_there() {
    code 137 two 4 $CTL die 3 >"$TMP/1" && [ "$(grep -c 'lost 3 code -9' "$TMP/1")" -eq 3 ]
}

unreachable() {
    code 1 on "$A" env HVD_DOCTOR=off "$RUN" -np 2 -H "localhost:1,no-such-host:1" bash -c "exec -a $MARK sleep 60" 2>"$TMP/2" &&
        says 'hvdrun: host no-such-host: ip netns exec ended with code' "$TMP/2" &&
        [ "$(wc -l <"$TMP/2")" -eq 1 ] && nothing_left
}

# The time-out names the host that is silent.
silent() {
    printf '#!/bin/sh\nexec sleep 60\n' >"$TMP/rsh"
    chmod +x "$TMP/rsh"
    code 1 on "$A" env HVD_RSH_AGENT="$TMP/rsh" "$RUN" --start-timeout 4 -np 2 -H "localhost:1,$B:1" \
        bash -c "exec -a $MARK sleep 60" 2>"$TMP/2" &&
        says "hvdrun: host $B: its agent has not joined within 4 s" "$TMP/2" && nothing_left
}

# A login shell that prints something.
chatty() {
    printf '#!/bin/sh\necho welcome to this host\nexec ip netns exec "$@"\n' >"$TMP/rsh"
    chmod +x "$TMP/rsh"
    code 1 on "$A" env HVD_RSH_AGENT="$TMP/rsh" "$RUN" -np 2 -H "localhost:1,$B:1" true 2>"$TMP/2" &&
        says "host $B: its login shell prints \"welcome to this host\"" "$TMP/2"
}

killed_hvdrun() {
    sleepers
    until_marked 2 && kill -9 $!
    wait $!
    nothing_left
}

# marked_there: a process named $MARK runs on B
marked_there() { pgrep -f "^$MARK" | grep -qxf <(ip netns pids "$B"); }
unmarked_there() { ! marked_there; }

# The agent on B is killed (as by the OOM killer): what its ranks have started ends too, in sessions of its own or not.
# hvdrun is stopped meanwhile: both hosts are this machine, and it would end those processes itself.
killed_agent() {
    ip netns exec "$A" "$RUN" -np 2 -H "localhost:1,$B:1" \
        bash -c "setsid bash -c 'exec -a $MARK sleep 60' & (exec -a $MARK sleep 60) & exec -a $MARK sleep 60" 2>"$TMP/2" &
    local pid=$! keeper rc=0
    until_marked 6 && marked_there || return 1
    keeper=$(pgrep -P $pid hvd-agent | grep -xf <(ip netns pids "$B"))
    kill -STOP $pid
    kill -KILL "$(pgrep -P "$keeper" hvd-agent)"
    wait_until 10 unmarked_there || { echo "left on $B:"; pgrep -af "^$MARK"; rc=1; }
    kill -CONT $pid
    wait $pid && rc=1
    [ $rc -eq 0 ] && says 'ended by signal 9' "$TMP/2" && nothing_left
}

# The network between the hosts fails: each side ends by itself.
cut_off() {
    sleepers
    local pid=$! rc=0
    until_marked 2 && ip -n "$B" link set veth0 down
    wait $pid || rc=$?
    ip -n "$B" link set veth0 up
    [ $rc -eq 1 ] && says "on $B" "$TMP/2" && nothing_left
}

# The arguments for ssh: a stand-in takes them and runs the last one in a shell on B.
as_ssh() {
    mkdir -p "$TMP/bin"
    cat >"$TMP/bin/ssh" <<'SH'
#!/bin/sh
echo "$@" >"$SSH_WORDS"
while [ $# -gt 2 ]; do shift; done
exec ip netns exec "$1" sh -c "$2"
SH
    chmod +x "$TMP/bin/ssh"
    env -u HVD_RSH_AGENT PATH="$TMP/bin:$PATH" SSH_WORDS="$TMP/words" ip netns exec "$A" "$RUN" -p 2222 \
        -H "localhost:1,$B:1" --no-prefix sh -c 'echo $HVD_CROSS_RANK' >"$TMP/1" &&
        [ "$(sort "$TMP/1" | tr '\n' ,)" = 0,1, ] && says '-T -o BatchMode=yes -o ConnectTimeout=30 -p 2222' "$TMP/words" &&
        ! grep -qi 'token\|BEGIN' "$TMP/words"
}

check control-frames control_frames
check as-ssh as_ssh
check real-ranks real_ranks
check environment environment
check places places
check listens-narrowly listens_narrowly
check failure-there failure_there
check died-there at_best died_there
check unreachable unreachable
check silent silent
check chatty chatty
check killed-hvdrun killed_hvdrun
check killed-agent killed_agent
check cut-off cut_off
exit $failed
