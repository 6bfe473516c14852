#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The doctor beside a job: the preflight and its policies, findings next to the rank that failed, the cause of a failure
# in the ranks' output, the watch, /metrics and /ready.
# timeout: 900
# takes: 20 s, waiting
# shellcheck disable=SC2317,SC2016,SC2154  # functions that check calls; words for other shells; common.sh
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
unset HVD_DOCTOR

# sick COMMAND...: runs the command with a fault that the doctor must find: a limit of 512 open files.
sick() { (ulimit -n 512 && timeout 60 "$@"); }

# hears PATTERN FILE: waits at most 30 s for the pattern
hears() {
    wait_until 30 grep -q -- "$1" "$2" && return 0
    echo "no \"$1\" within 30 s in:"
    cat "$2"
    return 1
}

fail_refuses() {
    code 1 sick "$RUN" --doctor fail -np 2 touch "$TMP/started" 2>"$TMP/2" &&
        says 'rank 0 on .*: not started: hvd-doctor found [0-9]* failure' "$TMP/2" &&
        says 'fail: .*(nofile-low)' "$TMP/2" && says 'fix: ' "$TMP/2" && [ ! -e "$TMP/started" ]
}

# The ranks start at once. Failures are printed while they run.
warn_runs() {
    rm -f "$TMP/go"
    : >"$TMP/2" # empties the output of the previous check's job
    sick "$RUN" -np 2 sh -c "until [ -e $TMP/go ]; do sleep 0.1; done; echo done" >"$TMP/1" 2>"$TMP/2" &
    local pid=$! rc=0
    hears 'hvdrun: doctor on localhost: fail: .*(nofile-low)' "$TMP/2" || rc=1
    touch "$TMP/go"
    wait "$pid" || rc=1
    cat "$TMP/1" "$TMP/2"
    [ "$(grep -c 'stdout>:done' "$TMP/1")" -eq 2 ] && [ "$(grep -c nofile-low "$TMP/2")" -eq 1 ] || rc=1
    return "$rc"
}

off_is_silent() {
    code 3 sick "$RUN" --doctor off -np 1 sh -c 'sleep 1; echo "CUDA out of memory." >&2; exit 3' 2>"$TMP/2" &&
        ! grep -q 'doctor\|likely cause' "$TMP/2"
}

by_variable() {
    HVD_DOCTOR=fail code 1 sick "$RUN" -np 1 true 2>"$TMP/2" && says 'not started' "$TMP/2" &&
        HVD_DOCTOR=fail code 0 sick "$RUN" --doctor off -np 1 true &&
        HVD_DOCTOR=often refused 'HVD_DOCTOR: "often": want fail, warn or off' "$RUN" -np 1 true
}

by_job_file() {
    cat >"$TMP/job.yaml" <<'END'
apiVersion: hvd.dev/v1alpha1
kind: HvdJob
metadata: {name: sick}
spec:
  doctor: {policy: fail}
  template: {spec: {containers: [{command: ["true"]}]}}
END
    code 1 sick "$RUN" -f "$TMP/job.yaml" 2>"$TMP/2" && says 'not started' "$TMP/2" &&
        code 0 sick "$RUN" --doctor off -f "$TMP/job.yaml" &&
        sed -i 's/policy: fail/policy: maybe/' "$TMP/job.yaml" &&
        refused 'spec.doctor.policy: want fail, warn or off' "$RUN" -f "$TMP/job.yaml"
}

# A rank that fails before the preflight has ended is reported with the preflight's findings, too.
with_the_rank() {
    code 7 sick "$RUN" -np 2 sh -c 'sleep 0.2; [ $HVD_RANK = 0 ] || exit 7' 2>"$TMP/2" &&
        says 'rank 1 on localhost .* exited with code 7' "$TMP/2" &&
        says 'the doctor found on localhost, where rank 1 ran:' "$TMP/2" &&
        says '  fail: .*(nofile-low); fix: ' "$TMP/2"
}

cause_is_named() {
    code 1 "$RUN" -np 2 sh -c 'echo "step 1"; [ $HVD_RANK = 0 ] && sleep 5
        echo "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1' >/dev/null 2>"$TMP/2" &&
        says 'hvdrun: likely cause: .*(cuda-oom)' "$TMP/2" && says 'rank 1 stderr, line 1: ' "$TMP/2" &&
        says 'fix: ' "$TMP/2"
}

# The line names the file, which begins with a number of as many digits as all ranks have.
cause_is_named_in_a_file() {
    code 1 "$RUN" -np 11 --output-filename "$TMP/files" sh -c '[ $HVD_RANK = 3 ] || sleep 5
        echo "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1' >/dev/null 2>"$TMP/2" &&
        says "$TMP/files/rank.03/stderr, line 1: " "$TMP/2" && [ -s "$TMP/files/rank.03/stderr" ]
}

no_cause_is_made_up() {
    code 1 "$RUN" -np 2 sh -c 'echo "epoch 1 loss 0.5"; exit 1' >/dev/null 2>"$TMP/2" &&
        ! grep -q 'likely cause' "$TMP/2"
}

no_doctor() {
    mkdir "$TMP/bin" && cp "$RUN" "$BUILD/hvd-agent" "$TMP/bin" &&
        code 0 "$TMP/bin/hvdrun" -np 1 true &&
        code 1 "$TMP/bin/hvdrun" --doctor fail -np 1 true 2>"$TMP/2" &&
        says 'not started: there is no hvd-doctor beside hvd-agent' "$TMP/2"
}

bad_words() {
    refused '"loud": want fail, warn or off' "$RUN" --doctor=loud -np 1 true &&
        refused 'before a command' "$RUN" --doctor true &&
        refused -- '--metrics' "$RUN" --metrics lots -np 1 true
}

# preflight_over: the preflight has ended; the page of $port is in $TMP/1
preflight_over() {
    curl -s "http://127.0.0.1:$port/metrics" >"$TMP/1"
    grep -q 'hvd_doctor_check_status{id="nofile-low"' "$TMP/1"
}

pages() {
    local port rc=0
    port=$(free_port)
    "$RUN" --metrics "127.0.0.1:$port" -np 2 bash -c "exec -a $MARK sleep 60" >/dev/null 2>"$TMP/2" &
    local pid=$!
    until_marked 2 || rc=1
    wait_until 30 preflight_over
    says 'hvd_rank_up{rank="1"} 1' "$TMP/1" && says 'hvd_watch_status{id="shm-free"} 0' "$TMP/1" &&
        says 'hvd_doctor_check_status{id="nofile-low",group="limits"} 0' "$TMP/1" || rc=1
    [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/ready")" = 200 ] || rc=1
    [ "$(curl -s "http://127.0.0.1:$port/healthz")" = ok ] || rc=1
    [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/other")" = 404 ] || rc=1
    kill "$pid"
    wait "$pid"
    return "$rc"
}

# watch_is_silent DIR: the watch of the job with this socket has no finding; the status is in $TMP/1
watch_is_silent() {
    curl -s --unix-socket "$1/sock" -H "Authorization: Bearer $(cat "$1/token")" http://job/v1/status >"$TMP/1"
    ! grep -q '"source":"watch"' "$TMP/1"
}

# /dev/shm of 8 MiB fills up while the job runs, and is emptied again.
watch_shm() {
    local script=$TMP/watch.sh
    cat >"$script" <<END
mount -t tmpfs -o size=8m shm /dev/shm || exit 99
exec "$RUN" -v -np 1 sh -c 'head -c 8300000 /dev/zero >/dev/shm/big
    until [ -e "$TMP/empty" ]; do sleep 0.1; done; rm /dev/shm/big; until [ -e "$TMP/end" ]; do sleep 0.1; done'
END
    rm -f "$TMP/empty" "$TMP/end"
    unshare -m bash "$script" >"$TMP/1" 2>"$TMP/2" &
    local pid=$! rc=0 dir
    hears 'doctor on localhost: fail: /dev/shm has .* of 8 MiB left (shm-free)' "$TMP/2" || rc=1
    dir=$(sed -n 's/.*membership socket \(.*\)\/sock$/\1/p' "$TMP/2")
    touch "$TMP/empty"
    wait_until 40 watch_is_silent "$dir"
    says '"findings"' "$TMP/1" || rc=1
    grep '"source":"watch"' "$TMP/1" && rc=1
    touch "$TMP/end"
    wait "$pid" || rc=1
    return "$rc"
}

sees_progress() {
    "$BUILD/hvd-doctor" -v --only rank-progress-stall >"$TMP/3"
    grep -q '2 ranks get on' "$TMP/3"
}

# hvd-doctor beside a job of this user asks the job for its ranks' progress.
asks_the_job() {
    local loop=$BUILD/tests/programs/loop rc=1
    "$RUN" --doctor off -np 2 "$loop" 65536 20 >"$TMP/1" 2>"$TMP/2" &
    local pid=$!
    wait_until 20 sees_progress && rc=0
    cat "$TMP/3"
    kill "$pid"
    wait "$pid"
    return "$rc"
}

check "fail: no rank is started" fail_refuses
check "warn: ranks run, failures are said" warn_runs
check "off: nothing" off_is_silent
check "HVD_DOCTOR" by_variable
check "a job file's policy" by_job_file
check "findings with the rank that failed" at_best with_the_rank
check "the cause in the output" cause_is_named
check "the cause in a file of the output" cause_is_named_in_a_file
check "no cause is made up" no_cause_is_made_up
check "without hvd-doctor" no_doctor
check "wrong words" bad_words
check "a job is asked how it gets on" asks_the_job
if command -v curl >/dev/null; then
    check "/metrics, /ready, /healthz" pages
    if unshare -m mount -t tmpfs shm /dev/shm 2>/dev/null; then
        check "the watch: a condition comes up and is over" watch_shm
    else
        skip_part watch mount-namespace "cannot make one (root)"
    fi
else
    skip_part pages curl "it is not installed"
fi
check "nothing left" nothing_left
exit $failed
