#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The membership of elastic jobs whose ranks only exchange control frames: the members of each epoch after losses, planned
# changes and replacements, and how such a job ends.
# timeout: 300
# takes: 30 s, waiting
# shellcheck disable=SC2317,SC2016,SC2086,SC2154  # functions that check calls; words for other shells; $RANKS is several words; common.sh
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
command -v curl >/dev/null || skip_all curl "asks a job over its socket"
# shellcheck source=tests/e2e/membership.sh
. "$(dirname "$0")/membership.sh"

# A rank is killed: the others train on without it, and it is replaced.
loss() {
    begin -np 3 --min-np 1 $RANKS
    line 3 'epoch 1 rank . of 3: 0 1 2 (change 0)' && kill -KILL "$(pid_of 1)" || return 1
    line 2 'epoch 2 rank . of 2: 0 2 (change 0)' &&
        line 1 'hvdrun: epoch 2: 2 of 3 ranks after .* ms: rank 1 on localhost (pid [0-9]*) was ended by signal 9 (SIGKILL)' &&
        line 3 'epoch 3 rank . of 3: 0 2 3\* (change 1)' &&
        line 1 'hvdrun: epoch 3: 3 of 3 ranks after .* ms: 1 rank joined' || return 1
    # The replacement (member 3, rank 2) dies too.
    kill -KILL "$(pid_of 2)"
    line 1 'hvdrun: epoch 4: 2 of 3 ranks after .* rank 2 (member 3) on localhost' && ends 0
}

changes() {
    begin -np 2 --min-np 2 --max-np 4 $RANKS
    line 2 'epoch 1 rank' || return 1
    [ "$(together 2 ask /v1/scale '{"np":4}')" = '{"change":1,"np":4} 200' ] &&
        line 4 'epoch 2 rank . of 4: 0 1 2\* 3\* (change 1)' || return 1
    [ "$(ask /v1/drain '{"rank":0}')" = '{"change":2,"np":3} 200' ] &&
        line 3 'epoch 3 rank . of 3: 1 2 3 (change 2)' && line 1 '0.<stdout>:asked to leave' || return 1
    [ "$(ask /v1/scale '{"np":2}')" = '{"change":3,"np":2} 200' ] &&
        line 2 'epoch 4 rank . of 2: 1 2 (change 3)' && line 1 '3.<stdout>:asked to leave' || return 1
    ask /v1/status | grep -q '"change":3' && ends 0
}

# Places are kept: a replacement has the number of the lost rank, and the highest numbers leave.
places() {
    begin -np 4 --min-np 1 --max-np 6 --keep-places $RANKS
    line 4 'epoch 1 rank . of 4: 0 1 2 3 (change 0)' && kill -KILL "$(pid_of 1)" || return 1
    line 3 'epoch 2 rank . of 3: 0 2@2 3@3 (change 0)' &&
        line 1 'numbers: epoch 2, rank 1 of 4, local rank 1 ' && line 4 'epoch 3 rank . of 4: 0 4\* 2 3 (change 1)' || return 1
    [ "$(together 3 ask /v1/scale '{"np":6}')" = '{"change":2,"np":6} 200' ] &&
        line 6 'epoch 4 rank . of 6: 0 4 2 3 5\* 6\* (change 2)' || return 1
    [ "$(ask /v1/drain '{"rank":0}')" = '{"change":3,"np":5} 200' ] &&
        line 5 'epoch 5 rank . of 5: 4@1 2@2 3@3 5@4 6@5 (change 3)' || return 1
    ask /v1/status | grep -q '"rank":0,"member":4,.*"place":1' || return 1
    [ "$(ask /v1/scale '{"np":4}')" = '{"change":4,"np":4} 200' ] &&
        line 4 'epoch 6 rank . of 4: 4@1 2@2 3@3 5@4 (change 4)' && ends 0 || return 1
    code 2 "$RUN" -np 2 --keep-places true 2>"$TMP/2" && says '--keep-places: a job of a fixed size never gets' "$TMP/2"
}

# An impossible change is refused with a reason, and the job is unchanged.
refusals() {
    local rc=0
    begin -np 2 --min-np 2 --max-np 3 $RANKS
    line 2 'epoch 1 rank' || return 1
    ask /v1/scale '{"np":1}' | grep -q 'minimum of 2.* 400' || rc=1
    ask /v1/scale '{"np":4}' | grep -q 'maximum of 3.* 400' || rc=1
    ask /v1/scale '{"np":"x"}' | grep -q 'scale: .* 400' || rc=1
    ask /v1/scale 'garbage' | grep -q 'scale: .* 400' || rc=1
    ask /v1/drain '{}' | grep -q 'want a rank or a host.* 400' || rc=1
    ask /v1/drain '{"rank":2}' | grep -q 'no rank 2: the job has ranks 0 to 1.* 400' || rc=1
    ask /v1/drain '{"rank":1}' | grep -q 'minimum of 2.* 400' || rc=1
    ask /v1/drain '{"host":"nowhere"}' | grep -q 'hosts are localhost.* 400' || rc=1
    ask /v1/status | grep -q '"state":"running".*"change":0' || rc=1
    ends 0 && [ $rc -eq 0 ] || return 1
    # A fixed job refuses changes.
    begin -np 2 sleep 5
    wait_until 10 answers /v1/status ' 200$'
    ask /v1/scale '{"np":1}' | grep -q 'fixed size.* 400' && finish 0
}

# Below the minimum the survivors wait. Then they go on, and the joiner is admitted at their next boundary.
below_min() {
    begin -np 2 --min-np 2 $RANKS
    line 2 'epoch 1 rank' && kill -KILL "$(pid_of 0)" || return 1
    line 1 'hvdrun: waiting for at least 2 ranks: 1 have the state in memory' &&
        line 1 'epoch 2 rank 0 of 1: 1 (change 0)' && line 2 'epoch 3 rank . of 2: 1 2\* (change 1)' && ends 0
}

# The wait has a limit. The exit code is that of the lost rank.
timeout_ends() {
    begin -np 2 --min-np 2 --elastic-timeout 1 bash -c "[ -e $TMP/late ] && exec sleep 50; exec $RANKS"
    line 2 'epoch 1 rank' && touch "$TMP/late" && kill -KILL "$(pid_of 0)" &&
        line 1 'hvdrun: waited 1 s (--elastic-timeout) for at least 2 ranks' && finish 137
}

reset_limit() {
    begin -np 2 --min-np 2 --reset-limit 1 $RANKS
    line 2 'epoch 1 rank' && kill -KILL "$(pid_of 0)" && line 2 'epoch 3 rank . of 2: 1 2\*' &&
        kill -KILL "$(pid_of 1)" && line 1 'hvdrun: too few ranks are left, and --reset-limit 1 is reached' && finish 137
}

# All ranks die at once: new members start from the beginning.
total_loss() {
    local pids
    begin -np 2 --min-np 1 $RANKS
    line 2 'epoch 1 rank' || return 1
    pids=("$(pid_of 0)" "$(pid_of 1)")
    kill -STOP "${pids[@]}" && kill -KILL "${pids[@]}" # the second one does not go on without the first
    line 2 'epoch 2 rank . of 2: 2\* 3\*' && ends 0
}

# The only agent is killed, and with it all ranks: another agent is started, and the ranks start from the beginning.
# Nothing that the first ones have started is left.
kill_agent() { kill -KILL "$(pgrep -P "$(pgrep -P "$job" hvdrun)" hvd-agent)"; }

only_agent() {
    begin -np 2 --min-np 1 bash -c "bash -c 'exec -a $MARK sleep 100' & exec $RANKS"
    line 2 'epoch 1 rank' && until_marked 2 && kill_agent || return 1
    line 1 'hvdrun: no rank is left that has the job.s state in memory: the ranks begin anew, from what the program has stored' &&
        line 1 'hvdrun: waiting for ranks to begin with: 0 of 2 ready; 2 to be started when a host has room' &&
        line 2 'epoch 2 rank . of 2: 2\* 3\*' &&
        line 1 'hvdrun: epoch 2: 2 of 2 ranks after .*: lost: hvd-agent was ended by signal 9' || return 1
    [ "$(pgrep -fc "^$MARK")" -eq 2 ] || { pgrep -af "^$MARK"; return 1; }
    ends 0
}

only_agent_limit() {
    begin -np 2 --min-np 2 --reset-limit 2 $RANKS
    line 2 'epoch 1 rank' && kill_agent && line 2 'epoch 2 rank . of 2: 2\* 3\*' && kill_agent && finish 1 &&
        line 1 'hvdrun: rank 1 (member 3) on localhost: lost: hvd-agent was ended by signal 9' &&
        line 1 'hvdrun: --reset-limit 2 is reached: no more ranks are started'
}

# The agent never worked: hvdrun says so and does not try again.
only_agent_at_start() {
    begin -np 2 --min-np 1 bash -c "exec -a $MARK sleep 100"
    until_marked 2 && kill_agent && finish 1 && line 1 'hvdrun: rank . on localhost: lost: hvd-agent was ended by signal 9'
}

# A rank that sends BYE with an error is no member any more, even though its process still runs.
out() {
    begin -np 3 --min-np 1 bash -c "[ \$HVD_RANK = 2 ] && set -- out; exec $RANKS \"\$@\""
    line 3 'epoch 1 rank' && kill -KILL "$(pid_of 0)" &&
        line 1 'epoch 2 rank 0 of 1: 1 ' &&
        line 1 'rank 2 on localhost (pid [0-9]*) cannot go on: Input/output error' && ends 0
}

# A program that fails at once is not started again and again.
does_not_work() {
    local begin=$EPOCHREALTIME
    begin -np 2 --min-np 1 bash -c "[ \$HVD_RANK = 1 ] && exit 3; exec $RANKS"
    finish 3 && [ "$(since_ms "$begin")" -lt 15000 ]
}

# A signal that ends programs ends the job: the ranks that it ends are not replaced.
signal_ends() {
    begin -np 2 --min-np 1 $RANKS
    line 2 'epoch 1 rank' || return 1
    kill -TERM "$(pgrep -P "$job" hvdrun)"
    finish 143 && ! grep -q 'is started on' "$TMP/out"
}

# Without hvdrun the ranks train on for a while, then their agent ends them.
hvdrun_lost() {
    local pid
    HVD_COORDINATOR_LOST_SECONDS=6 begin -np 2 --min-np 1 bash -c "exec -a $MARK $RANKS"
    line 2 'epoch 1 rank' || return 1
    pid=$(pgrep -P "$job" hvdrun)
    kill -KILL "$pid"
    wait "$job"
    sleep 1 # time for the agent to end the ranks too early
    marked || { echo "the ranks ended at once"; return 1; }
    nothing_left || return 1
    code 1 env HVD_COORDINATOR_LOST_SECONDS=x "$RUN" -np 1 true 2>"$TMP/2" &&
        says 'HVD_COORDINATOR_LOST_SECONDS=x: want an integer from 1' "$TMP/2"
}

check "a lost rank is replaced" loss
check "scale up, drain, scale down" changes
check "places are kept" places
check "changes that cannot be" refusals
check "below min the survivors wait" below_min
check "--elastic-timeout" timeout_ends
check "--reset-limit" reset_limit
check "all are lost" total_loss
check "the only agent is lost" only_agent
check "the only agent is lost, --reset-limit" only_agent_limit
check "the only agent is lost at the start" only_agent_at_start
check "a rank that cannot go on" out
check "a program that does not work" does_not_work
check "a signal ends the job" signal_ends
check "hvdrun is lost" hvdrun_lost
exit "$failed"
