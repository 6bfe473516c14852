#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun is killed and another one takes the job over. Training goes on meanwhile, ranks that die wait for the new hvdrun,
# and everything that hvdrun does works as before. If no hvdrun comes, nothing is left. Ranks speak the control frames
# (ctl_elastic.py); the last check has ranks of libhvd.
# timeout: 400
# takes: 50 s, waiting
# shellcheck disable=SC2317,SC2086,SC2154  # functions that check calls; $RANKS is several words; common.sh
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
command -v curl >/dev/null || skip_all curl "asks a job over its socket"
# shellcheck source=tests/e2e/membership.sh
. "$(dirname "$0")/membership.sh"
# shellcheck source=tests/e2e/attach.sh
. "$(dirname "$0")/attach.sh"
# Longer than a busy machine takes from one hvdrun to the next.
export HVD_COORDINATOR_LOST_SECONDS=60
goes_on() {
    local before
    begun 3 -np 3 --min-np 1 --max-np 5 $RANKS || return 1
    before=$(batches 0)
    lost
    sleep 2 # time for the ranks to train on, or to fail
    attached && [ "$(batches 0)" -ge $((before + 10)) ] || return 1
    line 1 'attached to job .*: 3 ranks on 1 host(s), epoch 1' || return 1
    # Everything that an hvdrun does: the job grows, a lost rank is replaced, the job ends with its code.
    together 1 timeout 30 "$RUN" scale "$NAME" 4 --wait 20 | grep 'in effect: epoch 2, 4 ranks' &&
        line 4 'rank . of 4: 0 1 2 3\* (change' && kill -KILL "$(pid_of 1)" || return 1
    line 1 'hvdrun: epoch 3: 3 of 4 ranks after .* rank 1 on localhost (pid [0-9]*) was ended by signal 9 (SIGKILL)' &&
        line 1 'hvdrun: epoch 4: 4 of 4 ranks after .*: 1 rank joined' && ends 0
}

twice() {
    begun 2 -np 2 --min-np 1 $RANKS || return 1
    lost
    attached || return 1
    lost
    attached || return 1
    kill -KILL "$(pid_of 1)" && line 1 'hvdrun: epoch 2: 1 of 2 ranks' &&
        line 2 'epoch [0-9]* rank . of 2: 0 2\* ' && grep -q 'epoch 2097155 ' "$TMP/out" && ends 0
}

refusals() {
    begun 2 -np 2 --min-np 1 $RANKS || return 1
    refused "has its hvdrun (pid $HVDRUN_PID): there is nothing to take over" "$RUN" attach "$NAME" &&
        refused 'no job "nobody"; jobs here: ' "$RUN" attach nobody &&
        refused 'want JOB' "$RUN" attach || return 1
    lost
    refused "if it is an elastic job, hvdrun attach $NAME takes it over" "$RUN" status "$NAME" || return 1
    # Two at once: one of them takes the job over.
    local rc=0 first second pid
    timeout 60 "$RUN" attach "$NAME" >"$TMP/first" 2>&1 &
    first=$!
    timeout 60 "$RUN" attach "$NAME" >"$TMP/second" 2>&1 &
    second=$!
    wait -n -p pid $first $second || rc=$?
    [ $rc -eq 1 ] || return 1
    cat "$TMP/first" "$TMP/second"
    grep -q 'has its hvdrun\|has just taken this job' "$TMP/first" "$TMP/second" || return 1
    touch "$END"
    wait $((first + second - pid)) && nothing_left
}

# A rank dies while there is no hvdrun: the new one makes the next epoch. It knows that places are kept, so the
# replacement is rank 1 again.
death_meanwhile() {
    local one
    begun 3 -np 3 --min-np 1 --keep-places $RANKS && one=$(pid_of 1) || return 1
    lost
    kill -KILL "$one"
    wait_until 10 ended "$one" || return 1
    attached && line 1 'hvdrun: epoch 2: 2 of 3 ranks after .* rank 1 on localhost (pid [0-9]*) was ended by signal 9' &&
        line 2 'epoch [0-9]* rank . of 2: 0 2@2 (change 0)' && line 3 'rank . of 3: 0 3\* 2 ' && ends 0
}

# Output that is printed while there is no hvdrun comes afterwards.
output_meanwhile() {
    begun 2 -np 2 --min-np 1 --no-prefix bash -c \
        "$RANKS & while [ ! -e $TMP/loud ]; do sleep 0.1; done; echo small; touch $TMP/said.\$HVD_RANK; wait" || return 1
    lost
    touch "$TMP/loud"
    wait_until 10 [ -e "$TMP/said.0" ] && wait_until 10 [ -e "$TMP/said.1" ] || return 1
    attached && line 2 '^small$' && ends 0
}

ended_meanwhile() {
    begun 2 -np 2 --min-np 1 $RANKS || return 1
    lost
    touch "$END"
    wait_until 10 no_rank_runs || return 1
    attached && finish 0
}

# The only agent is killed under the new hvdrun, which is not its parent: another agent is started, and nothing that the
# first one's ranks have started is left. If it is killed while there is no hvdrun, the job is over, and the next hvdrun
# says so.
only_agent() {
    local agent
    begun 2 -np 2 --min-np 1 bash -c "bash -c 'exec -a $MARK sleep 100' & exec $RANKS" && until_marked 2 || return 1
    agent=$(pgrep -P "$HVDRUN_PID" hvd-agent)
    lost
    attached && kill -KILL "$agent" && line 1 'no rank is left that has the job.s state in memory' &&
        line 2 'rank . of 2: 2\* 3\*' || return 1
    [ "$(pgrep -fc "^$MARK")" -eq 2 ] || { pgrep -af "^$MARK"; return 1; }
    agent=$(pgrep -P "$HVDRUN_PID" hvd-agent)
    lost
    kill -KILL "$agent"
    pgrep -f "^$MARK" | xargs -r kill -KILL
    attached && return 1
    finish 1 && line 1 "hvdrun: no agent of job $NAME has rejoined: its ranks have ended"
}

# No hvdrun comes: the agents end the job.
nobody_comes() {
    local began
    HVD_COORDINATOR_LOST_SECONDS=6 begun 2 -np 2 --min-np 1 $RANKS || return 1
    began=$EPOCHREALTIME
    lost
    sleep 1 # time for the agents to end the ranks too early
    pgrep -f "ctl_elastic.py $END" >/dev/null || { echo "the ranks ended too early"; return 1; }
    no_ranks 19 || return 1
    [ "$(since_ms "$began")" -lt 19000 ] && refused 'no job' "$RUN" attach "$NAME"
}

signals() {
    begun 2 -np 2 --min-np 1 $RANKS || return 1
    lost
    attached && kill -TERM "$HVDRUN_PID" && line 1 'signal 15 (SIGTERM) goes to all ranks' && finish 143
}

fixed_job() {
    HVD_COORDINATOR_LOST_SECONDS=10 "$RUN" --doctor off --name "$NAME" -np 2 \
        bash -c "exec -a $MARK sleep 60" >"$TMP/out" 2>&1 &
    HVDRUN_PID=$!
    until_marked 2
    kill -KILL $HVDRUN_PID
    wait $HVDRUN_PID 2>/dev/null
    refused 'it has a fixed size and ends without its hvdrun' "$RUN" attach "$NAME" && nothing_left
}

# Ranks of libhvd train on, without a coordinator and with the new one.
training() {
    export HVD_LIBRARY=$BUILD/libhvd.so PYTHONPATH=$ROOT/core/python HVD_TEST_JOB=$NAME PYTHONDONTWRITEBYTECODE=1
    mkdir "$TMP/diary"
    # The ranks stop after the world has changed, which cannot happen while there is no hvdrun.
    HVD_TEST_CHANGES=1 "$RUN" --doctor off --name "$NAME" -np 3 --min-np 2 "${PY:-/usr/bin/python3}" \
        tests/python/elastic_rank.py "$TMP/diary" 400 4 >"$TMP/out" 2>&1 &
    HVDRUN_PID=$! job=$!
    wait_until 60 diaries 3 || return 1
    lost
    wait_until 60 recorded_beyond $(($(recorded) + 1000)) || return 1 # they train without a coordinator
    attached && timeout 30 "$RUN" scale "$NAME" 2 && finish 0 && "${PY:-/usr/bin/python3}" tests/python/elastic_rank.py check "$TMP/diary" 400
}

check goes-on aside goes_on
check taken-over-twice aside twice
check refusals aside refusals
check a-death-meanwhile aside death_meanwhile
check output-meanwhile aside output_meanwhile
check the-end-meanwhile aside ended_meanwhile
check the-only-agent aside only_agent
check nobody-comes aside nobody_comes
check signals aside signals
check a-fixed-job aside fixed_job
check training aside training
exit $failed
