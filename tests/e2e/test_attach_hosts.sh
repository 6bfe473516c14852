#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun attach with ranks on another host (network namespaces): agents find the new hvdrun at the address, port and
# certificate of the killed one, and training goes on. If no hvdrun comes, nothing is left on any host. Ranks speak the
# control frames (ctl_elastic.py); the last check has ranks of libhvd.
# timeout: 600
# takes: 50 s, waiting
# shellcheck disable=SC2317,SC2086,SC2154,SC2016  # functions that check calls; $RANKS is several words; common.sh; words for another shell
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
can_netns || skip_all netns "cannot make network namespaces (root and iproute2)"
command -v curl >/dev/null || skip_all curl "asks a job over its socket"
make_hosts || exit 1
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
# shellcheck source=tests/e2e/membership.sh
. "$(dirname "$0")/membership.sh"
# shellcheck source=tests/e2e/attach.sh
. "$(dirname "$0")/attach.sh"
A=${hosts[0]} B=${hosts[1]}
export HVD_RSH_AGENT="ip netns exec"
# Longer than a busy machine takes from one hvdrun to the next.
export HVD_COORDINATOR_LOST_SECONDS=60 CTL_SECONDS=120
# With this heartbeat hvdrun does not treat an agent of the other host as lost when that agent gets no processor for half
# a second.
export HVD_HEARTBEAT_MS=1000
prefix=(ip netns exec "$A")

port() { on "$A" ss -Htln | sed -n 's/.*10.213.7.1:\([0-9]*\).*/\1/p'; }

port_is() { [ "$(port)" = "$1" ]; }

# empty HOST: no process runs there
empty() { [ -z "$(ip netns pids "$1")" ]; }

# The same epoch goes on, on both hosts. The server has the same port.
goes_on() {
    local there before
    begun 4 -np 4 --min-np 1 --max-np 6 -H "localhost:3,$B:3" $RANKS || return 1
    there=$(port) before=$(batches 3)
    lost
    sleep 2 # time for the ranks to train on, or to fail
    attached || return 1
    [ "$(port)" = "${there:-none}" ] || { echo "port $there, now $(port)"; return 1; }
    line 1 'attached to job .*: 4 ranks on 2 host(s), epoch 1' && ! grep -q 'epoch 2' "$TMP/out" || return 1
    [ "$(batches 3)" -ge $((before + 10)) ] || { echo "batches $before, now $(batches 3)"; return 1; }
    together 2 timeout 30 "$RUN" scale "$NAME" 6 --wait 20 | grep 'in effect: epoch 2, 6 ranks' &&
        line 6 'epoch [0-9]* rank . of 6: 0 1 2 3 4\* 5\* ' && line 1 "member [45] is started on $B" &&
        kill -KILL "$(pid_of 3)" && line 1 "hvdrun: epoch 3: 5 of 6 ranks after .* rank 3 on $B (pid [0-9]*) was ended by signal 9" &&
        line 1 'hvdrun: epoch 4: 6 of 6 ranks' && ends 0
}

nobody_comes() {
    HVD_COORDINATOR_LOST_SECONDS=6 begun 4 -np 4 --min-np 1 -H "localhost:2,$B:2" $RANKS || return 1
    lost
    sleep 1 # time for the agents to end the ranks too early
    [ "$(pgrep -fc "^[^ ]*python[^ ]* .*ctl_elastic.py $END")" -eq 4 ] || { echo "the ranks ended too early"; return 1; }
    no_ranks 19 || return 1
    # The agent on host B may still be ending.
    wait_until 5 empty "$B" || { echo "left on $B:"; ip netns pids "$B" | xargs ps -fp; return 1; }
    refused 'no job' "${prefix[@]}" "$RUN" attach "$NAME"
}

# An agent whose hvdrun was killed before the agent joined: its pipe has no reader. The output of its ranks must still
# arrive.
late_agent() {
    printf '#!/bin/sh\nwhile ! [ -e %s/go ]; do sleep 0.1; done\nexec ip netns exec "$@"\n' "$TMP" >"$TMP/rsh"
    chmod +x "$TMP/rsh"
    rm -f "$TMP/go"
    HVD_RSH_AGENT="$TMP/rsh" begun 1 -np 1 --min-np 1 --max-np 2 -H "localhost:1,$B:1" \
        bash -c 'echo "this is $HOROVOD_HOSTNAME"; exec "$@"' - $RANKS || return 1
    lost
    touch "$TMP/go"
    attached || return 1
    together 1 timeout 30 "$RUN" scale "$NAME" 2 --wait 20 | grep 'in effect: epoch 2, 2 ranks' &&
        line 1 "member 1 is started on $B" && line 1 "this is $B" && ends 0
}

# An hvdrun that took over is killed too, and the next one.
thrice() {
    begun 2 -np 2 --min-np 1 -H "localhost:1,$B:1" $RANKS || return 1
    for _ in 1 2 3; do
        lost
        attached || return 1
    done
    kill -KILL "$(pid_of 1)" && line 1 'hvdrun: epoch 2: 1 of 2 ranks' && line 2 'rank . of 2: 0 2\* ' && ends 0
}

# one_attached PID...: at most one of these processes still runs, and one has taken the job over
one_attached() {
    local pid alive=0
    for pid; do kill -0 "$pid" 2>/dev/null && alive=$((alive + 1)); done
    [ $alive -le 1 ] && grep -q 'attached to job' "$TMP"/at[1-5]
}

# Five at once: one of them takes the job over, the others say so, and the job is not disturbed.
five_at_once() {
    local pids=() i
    begun 2 -np 2 --min-np 1 -H "localhost:1,$B:1" $RANKS || return 1
    lost
    for i in 1 2 3 4 5; do
        timeout 60 "${prefix[@]}" "$RUN" attach "$NAME" >"$TMP/at$i" 2>&1 &
        pids+=($!)
    done
    wait_until 20 one_attached "${pids[@]}"
    cat "$TMP"/at[1-5]
    [ "$(cat "$TMP"/at[1-5] | grep -c "has its hvdrun\|another hvdrun has just taken this job")" -eq 4 ] &&
        [ "$(cat "$TMP"/at[1-5] | grep -c 'attached to job .*: 2 ranks on 2 host(s), epoch 1')" -eq 1 ] || return 1
    touch "$END"
    for i in "${pids[@]}"; do wait "$i"; done
    nothing_left
}

# The next hvdrun makes a change that was requested from the killed one, even if no rank had heard of it.
after_scale() {
    begun 2 -np 2 --min-np 1 --max-np 6 -H "localhost:3,$B:3" $RANKS || return 1
    together 2 timeout 30 "$RUN" scale "$NAME" 4 --wait 20 | grep 'in effect: epoch 2, 4 ranks' || return 1
    lost
    attached && line 1 'attached to job .*: 4 ranks on 2 host(s), epoch 2' || return 1
    ask /v1/scale '{"np":6}' | grep ' 200'
    lost
    attached && line 6 'rank . of 6: 0 1 2 3 ' || return 1
    ask /v1/scale '{"np":2}' | grep ' 200'
    lost
    attached && wait_until 10 answers /v1/status '"size":2,'
    ask /v1/status | grep '"size":2,.*"np":2' && ends 0
}

# A rank has just died on the other host, and another rank dies while the new hvdrun gathers the agents' reports.
in_a_repair() {
    local third
    begun 4 -np 4 --min-np 1 -H "localhost:2,$B:2" $RANKS && third=$(pid_of 1) || return 1
    local fourth
    fourth=$(pid_of 3) && kill -STOP "$HVDRUN_PID" && kill -KILL "$fourth" # this hvdrun does not notice it
    lost
    attached && kill -KILL "$third" && line 1 'rank 3 on .* (pid [0-9]*) was ended by signal 9' &&
        line 1 'rank 1 on .* (pid [0-9]*) was ended by signal 9' && line 4 'rank . of 4: 0 2 ' && ends 0
}

# The agent of the other host dies while there is no hvdrun. The new hvdrun waits for it, not long, and replaces it,
# reaching that host as the first hvdrun did.
agent_lost() {
    begun 4 -np 4 --min-np 1 -H "localhost:2,$B:2" $RANKS || return 1
    lost
    ip netns pids "$B" | xargs -r kill -KILL
    local prefix=("${prefix[@]}" env -u HVD_RSH_AGENT)
    attached && line 1 'hvdrun: epoch 2: 2 of 4 ranks after .*: it did not come back to this hvdrun' &&
        line 4 'rank . of 4: 0 1 [4-9]\* [4-9]\*' && ends 0
}

# The new hvdrun runs the discovery script, and uses its hosts, including hosts that are new to the job.
discovery() {
    printf '#!/bin/sh\ncat %s\n' "$TMP/names" >"$TMP/hosts"
    chmod +x "$TMP/hosts"
    printf 'localhost:2\n%s:1\n' "$B" >"$TMP/names"
    cd "$TMP" && begun 3 -np 3 --min-np 1 --max-np 6 --host-discovery-script ./hosts $RANKS
    cd "$ROOT" || return 1
    lost
    attached || return 1
    printf 'localhost:2\n%s:3\n' "$B" >"$TMP/names"
    line 5 'rank . of 5: 0 1 2 ' || return 1
    lost
    printf 'localhost:2\n' >"$TMP/names"
    attached && line 1 "host $B was drained" && line 1 'hvdrun: epoch [0-9]*: 2 of 2 ranks' || return 1
    lost
    attached || return 1
    printf 'localhost:2\n%s:2\n' "$B" >"$TMP/names"
    line 4 'rank . of 4: 0 1 ' && ends 0
}

# An hvdrun at an address that agents do not reach refuses to take the job over, and the job waits for another one.
elsewhere() {
    begun 2 -np 2 --min-np 1 -H "localhost:1,$B:1" $RANKS || return 1
    lost
    refused "this machine has no address 10.213.7.1.*: attach where the first hvdrun ran" ip netns exec "$B" "$RUN" attach "$NAME" || return 1
    refused "is of another machine or container.*: attach there" "${prefix[@]}" unshare --pid --fork "$RUN" attach "$NAME" ||
        return 1
    attached && line 1 'attached to job .*: 2 ranks on 2 host(s), epoch 1' && ends 0
}

# Another process listens at the killed hvdrun's port.
port_taken() {
    begun 2 -np 2 --min-np 1 -H "localhost:1,$B:1" $RANKS || return 1
    local there squatter
    there=$(port)
    lost
    ip netns exec "$A" "${PY:-/usr/bin/python3}" -c "
import socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('10.213.7.1', $there))
s.listen(100)
time.sleep(60)" &
    squatter=$!
    wait_until 10 port_is "$there"
    refused "10.213.7.1 port $there: .*Address already in use" "${prefix[@]}" "$RUN" attach "$NAME" || return 1
    kill -KILL "$squatter"
    wait "$squatter" 2>/dev/null
    attached && line 1 'attached to job .*: 2 ranks on 2 host(s), epoch 1' && ends 0
}

# A rank on the other host prints three megabytes while there is no hvdrun. The newest are kept.
much_output() {
    begun 2 -np 2 --min-np 1 --no-prefix -H "localhost:1,$B:1" bash -c \
        "$RANKS & if [ \$HVD_RANK = 1 ]; then while [ ! -e $TMP/loud ]; do sleep 0.1; done; seq -f 'line %06.0f of the output' 1 120000; touch $TMP/said; fi; wait" ||
        return 1
    lost
    touch "$TMP/loud"
    wait_until 10 [ -e "$TMP/said" ] || { echo "the rank is held up"; return 1; }
    attached && line 1 '^line 120000 of the output$' && ends 0 || return 1
    "${PY:-/usr/bin/python3}" - "$TMP/out" "$B" <<'PY'
import re, sys
text, host = open(sys.argv[1]).read(), sys.argv[2]
lost = re.findall(r"host (\S+): (\d+) bytes of output .* were not kept", text)
assert len(lost) == 1 and lost[0][0] == host, lost
kept = [int(n) for n in re.findall(r"(?m)^line (\d{6}) of the output$", text)]
assert kept == list(range(kept[0], 120001)), "with a gap, or in another order"
size = len("line 000000 of the output\n")
assert 300000 < len(kept) * size < 1500000, len(kept)
assert abs(int(lost[0][1]) + len(kept) * size - 120000 * size) <= 2 * size, (lost, len(kept))
PY
}

# Ranks of libhvd on both hosts lose no step while hvdrun is killed and replaced twice.
training() {
    export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$ROOT/core/python HVD_TEST_JOB=$NAME PYTHONDONTWRITEBYTECODE=1
    mkdir "$TMP/diary"
    # The ranks stop after rank 3 was lost and replaced, which cannot happen while there is no hvdrun.
    HVD_TEST_CHANGES=2 "${prefix[@]}" "$RUN" --doctor off --name "$NAME" -np 4 --min-np 2 -H "localhost:2,$B:2" "${PY:-/usr/bin/python3}" \
        tests/python/elastic_rank.py "$TMP/diary" 600 4 >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    wait_until 60 diaries 4 || return 1
    lost
    wait_until 60 recorded_beyond $(($(recorded) + 1000)) || return 1 # they train without a coordinator
    attached || return 1
    kill -USR1 "$(pid_of 3)"
    lost
    attached || return 1
    finish 0 && "${PY:-/usr/bin/python3}" tests/python/elastic_rank.py check "$TMP/diary" 600
}

check goes-on aside goes_on
check late-agent aside late_agent
check nobody-comes aside nobody_comes
check taken-over-thrice aside thrice
check five-at-once aside five_at_once
check after-scale aside after_scale
check in-a-repair aside in_a_repair
check an-agent-lost-meanwhile aside agent_lost
check discovery aside discovery
check elsewhere aside elsewhere
check a-port-that-is-taken aside port_taken
check much-output aside much_output
check training aside training
exit "$failed"
