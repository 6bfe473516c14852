#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun on this machine: output, exit codes, signals, the death of a rank, an agent or hvdrun itself, and that nothing is
# left behind.
# timeout: 900
# takes: 60 s, waiting
# shellcheck disable=SC2317,SC2016,SC2086,SC2012  # functions that check calls; words for other shells; $CTL is two words; our own file names
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"

# sleeper: a command that sleeps under a name that the test finds
sleeper() { echo "exec -a $MARK sleep 60"; }

output() {
    code 0 "$RUN" -np 3 sh -c 'echo out $HVD_RANK of $HOROVOD_SIZE; echo err $HVD_LOCAL_RANK >&2' \
        >"$TMP/1" 2>"$TMP/2" &&
        [ "$(sort "$TMP/1" | tr '\n' ,)" = "[0]<stdout>:out 0 of 3,[1]<stdout>:out 1 of 3,[2]<stdout>:out 2 of 3," ] &&
        [ "$(sort "$TMP/2" | tr '\n' ,)" = "[0]<stderr>:err 0,[1]<stderr>:err 1,[2]<stderr>:err 2," ]
}

files() {
    code 0 "$RUN" -np 11 --output-filename "$TMP/dir" sh -c 'echo to $HVD_RANK; echo too $HVD_RANK >&2' &&
        [ "$(ls "$TMP/dir" | tr '\n' ,)" = "rank.00,rank.01,rank.02,rank.03,rank.04,rank.05,rank.06,rank.07,rank.08,rank.09,rank.10," ] &&
        [ "$(cat "$TMP/dir/rank.07/stdout")" = "to 7" ] && [ "$(cat "$TMP/dir/rank.10/stderr")" = "too 10" ]
}

no_prefix() {
    [ "$("$RUN" --no-prefix -np 1 printf 'a\nb')" = "$(printf 'a\nb')" ]
}

unfinished() {
    "$RUN" -np 1 sh -c 'printf half; sleep 1; echo " whole"' >"$TMP/1"
    [ "$(cat "$TMP/1")" = "[0]<stdout>:half whole" ]
}

much() {
    [ "$("$RUN" -np 1 --no-prefix seq 300000 | md5sum)" = "$(seq 300000 | md5sum)" ] || return 1
        [ "$("$RUN" -np 2 seq 100000 | (sleep 1; grep -c '^.[01].<stdout>:'))" -ge 200000 ]
}

# All ranks and agents end long before their output is read.
late_reader() {
    [ "$(timeout 60 "$RUN" -np 1 seq 50000 | (sleep 1.5; wc -l))" -eq 50000 ]
}

# printing LINES: for each of two ranks, a command that prints so many lines and then creates a file
printing() { echo "seq $1 | sed 's/^/a line that fills the pipe /'; touch $TMP/printed.\$HVD_RANK"; }

both_printed() { [ -e "$TMP/printed.0" ] && [ -e "$TMP/printed.1" ]; }
until_printed() {
    wait_until 30 both_printed
    rm "$TMP/printed.0" "$TMP/printed.1" # fails if a rank is still printing
}

# missing FILE TEXT: the sum of the missing lines that FILE reports
missing() {
    sed -n "s/^hvdrun: \([0-9]*\) lines of output ([0-9]* bytes) are missing here: $2\$/\1/p" "$1"
}

# The reader stops: the ranks end all the same. When it reads again it finds the number of missing lines.
stopped_reader() {
    local pid rc=0 lines
    mkfifo "$TMP/fifo" && exec 9<>"$TMP/fifo" || return 1
    HVD_OUTPUT_BUFFER=1M "$RUN" -np 2 sh -c "$(printing 100000)" >"$TMP/fifo" 2>"$TMP/2" 9<&- &
    pid=$!
    until_printed || { kill -9 $pid; echo "the ranks wait for the reader"; return 1; }
    cat <"$TMP/fifo" >"$TMP/1" 9<&- &
    exec 9<&-
    wait $pid || rc=$?
    wait
    rm "$TMP/fifo"
    lines=$(grep -c '^.[01].<stdout>:a line' "$TMP/1")
    echo "$lines lines have come, missing: $(missing "$TMP/1" 'nobody read it for a while')"
    [ $rc -eq 0 ] && says 'hvdrun: standard output: its reader has stopped' "$TMP/2" &&
        [ $((lines + $(missing "$TMP/1" 'nobody read it for a while'))) -eq 200000 ] && nothing_left
}

# An output file that takes nothing, like a disk that hangs: the ranks end all the same. If the disk never continues,
# hvdrun reports that and ends.
stopped_disk() {
    local pid rc=0 lines
    mkdir -p "$TMP/disk/rank.0" && mkfifo "$TMP/disk/rank.0/stdout" && exec 9<>"$TMP/disk/rank.0/stdout" || return 1
    HVD_OUTPUT_BUFFER=1M "$RUN" -np 2 --output-filename "$TMP/disk" sh -c "$(printing 100000)" >"$TMP/1" 2>"$TMP/2" 9<&- &
    pid=$!
    until_printed || { kill -9 $pid; echo "the ranks wait for the disk"; return 1; }
    cat <"$TMP/disk/rank.0/stdout" >"$TMP/3" 9<&- &
    exec 9<&-
    wait $pid || rc=$?
    wait
    lines=$(grep -c '^a line.*[0-9]$' "$TMP/3") # a line without its end counts as missing
    echo "exit code $rc, $lines lines have come, missing: $(missing "$TMP/3" 'the disk was too slow')"
    [ $rc -eq 0 ] && [ "$(grep -c '^.0.<stdout>:a line' "$TMP/1")" -eq 100000 ] &&
        [ $((lines + $(missing "$TMP/3" 'the disk was too slow'))) -eq 100000 ] || return 1
    exec 9<>"$TMP/disk/rank.0/stdout"
    code 1 "$RUN" -np 1 --output-filename "$TMP/disk" sh -c 'seq 100000' >"$TMP/1" 2>"$TMP/2" 9<&- || rc=1
    exec 9<&-
    [ $rc -eq 0 ] && says 'hvdrun: output file rank.0/stdout: Connection timed out' "$TMP/2" && nothing_left
}

# A slow reader gets all lines.
slow_reader() {
    local n
    n=$("$RUN" -np 2 seq 300000 | (sleep 6; grep -c '^.[01].<stdout>:'))
    [ "$n" -ge 600000 ] || { echo "$n lines"; return 1; }
}

# hvdrun | head: the job ends, as one process would.
reader_gone() {
    { timeout 50 "$RUN" -np 2 bash -c "($(sleeper)) & yes" 2>"$TMP/2"; echo $? >"$TMP/code"; } | head -n 1 >"$TMP/1"
    [ "$(cat "$TMP/code")" -eq 141 ] && says 'hvdrun: standard output: the process that read it has ended' "$TMP/2" && nothing_left
}

# A write error of a full disk is printed once, and the job fails.
full_disk() {
    code 1 "$RUN" -np 2 sh -c 'echo x; sleep 0.3; echo y' >/dev/full 2>"$TMP/2" &&
        [ "$(grep -c 'hvdrun: standard output: No space left on device' "$TMP/2")" -eq 1 ] || return 1
    mkdir -p "$TMP/dir/rank.0" && ln -sf /dev/full "$TMP/dir/rank.0/stdout" &&
        code 1 "$RUN" -np 1 --output-filename "$TMP/dir" echo x >"$TMP/1" 2>"$TMP/2" &&
        says 'hvdrun: output file rank.0/stdout: No space left on device' "$TMP/2" && says '^.0.<stdout>:x' "$TMP/1"
}

closed_streams() {
    code 0 "$RUN" -np 2 sh -c 'echo out; echo err >&2' <&- >&- 2>"$TMP/2" && [ "$(grep -c '<stderr>:err' "$TMP/2")" -eq 2 ]
}

# The shell is the rank's process. Its child has joined and dies: the others need not wait for the shell.
script_goes_on() {
    local begin=$SECONDS
    code 7 "$RUN" -np 2 bash -c "$CTL die 1; rc=\$?; [ \$HVD_RANK = 1 ] && exec -a $MARK sleep 55; exit \$rc" >"$TMP/1" 2>"$TMP/2" &&
        says 'rank 0: lost 1 .* ended without hvd_shutdown' "$TMP/1" && [ $((SECONDS - begin)) -le 40 ] && nothing_left
}

stdin_is_null() {
    [ "$(echo hello | "$RUN" --no-prefix -np 1 cat)" = "" ]
}

environment() {
    MINE=1 code 0 "$RUN" -np 2 -x SET=2 sh -c '[ $MINE = 1 ] && [ $SET = 2 ] && [ $PYTHONUNBUFFERED = 1 ]'
}

first_failure() {
    code 3 "$RUN" -np 3 bash -c "[ \$HVD_RANK = 1 ] && echo the reason >&2 && exit 3; $(sleeper)" 2>"$TMP/2" &&
        says 'hvdrun: rank 1 on localhost (pid [0-9]*) exited with code 3' "$TMP/2" &&
        says 'hvdrun:   the reason' "$TMP/2" && nothing_left
}

by_signal() {
    code 139 "$RUN" -np 2 bash -c "[ \$HVD_RANK = 0 ] && kill -SEGV \$\$; $(sleeper)" 2>"$TMP/2" &&
        says 'rank 0 on localhost (pid [0-9]*) was ended by signal 11 (SIGSEGV)' "$TMP/2" && nothing_left
}

# A rank that ignores SIGTERM gets SIGKILL, within 5 s of the first failure.
stubborn() {
    local begin=$EPOCHREALTIME took
    code 1 "$RUN" -np 2 bash -c "if [ \$HVD_RANK = 0 ]; then until [ -e $TMP/trapped ]; do sleep 0.1; done; exit 1; fi
        trap '' TERM; touch $TMP/trapped; $(sleeper)" 2>"$TMP/2" ||
        return 1
    took=$(since_ms "$begin")
    echo "all ended after $took ms"
    nothing_left && [ "$took" -le 5500 ]
}

not_found() {
    code 127 "$RUN" -np 2 no-such-command 2>"$TMP/2" && says 'cannot run no-such-command: command not found' "$TMP/2" &&
        [ "$(wc -l <"$TMP/2")" -eq 1 ]
}

not_executable() {
    code 126 "$RUN" -np 2 "$ROOT/Makefile" 2>"$TMP/2" && says 'cannot run .*Makefile: Permission denied' "$TMP/2"
}

# An exec that waits, as for a file server: here for a lease on the program. The kernel asks the lease's owner to release
# it by SIGIO, which the owner ignores.
exec_waits() {
    local begin=$SECONDS holder rc=0
    cp /bin/true "$TMP/program"
    ${PY:-/usr/bin/python3} -c '
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
os.close(os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY))
time.sleep(60)' "$TMP/program" "$TMP/leased" &
    holder=$!
    wait_until 10 [ -e "$TMP/leased" ]
    code 126 "$RUN" --start-timeout 3 -np 2 "$TMP/program" 2>"$TMP/2" &&
        says "rank [01] on localhost: $TMP/program has not begun to run within 3 s" "$TMP/2" || rc=1
    kill "$holder"
    wait "$holder"
    [ $((SECONDS - begin)) -le 20 ] && [ $rc -eq 0 ] && nothing_left
}

# A host has 512 seats: 513 ranks are refused before anything starts.
too_many() {
    code 2 "$RUN" -np 513 true 2>"$TMP/2" &&
        says '513 ranks do not fit: one host runs at most 512 ranks .* host localhost was given 513 slots' "$TMP/2"
}

# The agent ends its ranks because hvdrun does not answer. The ranks exit with 0, the job does not.
stopped_hvdrun() {
    "$RUN" -np 2 bash -c "trap 'exit 0' TERM; (exec -a $MARK sleep 60) & wait" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 2 && kill -STOP "$pid"
    wait_until 30 unmarked
    kill -CONT "$pid"
    wait "$pid" || rc=$?
    [ "$rc" -eq 1 ] && says 'hvdrun has not answered for 5 s .*: ending the ranks' "$TMP/2" && nothing_left
}

# Children of ranks are ended too, in sessions of their own or not. When one rank ends, two of the four children end: the
# file tells the other rank that all four ran.
grandchildren() {
    code 0 "$RUN" -np 2 bash -c "($(sleeper)) & setsid bash -c '$(sleeper)' &
        until [ -e $TMP/all ] || [ \$(pgrep -fc '^$MARK') -ge 4 ]; do sleep 0.1; done
        touch $TMP/all" && nothing_left
}

# forwarded NAME: hvdrun forwards this signal
forwarded() {
    "$RUN" -np 2 bash -c "trap 'echo got $1; exit 5' $1; (trap '' $1; exec -a $MARK sleep 20) & wait" >"$TMP/1" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 2 && kill "-$1" "$pid"
    wait "$pid" || rc=$?
    [ "$rc" -eq 5 ] && [ "$(grep -c "got $1" "$TMP/1")" -eq 2 ] && nothing_left
}

# A script's background commands ignore SIGINT; hvdrun restores it for itself.
interrupted() {
    ${PY:-/usr/bin/python3} - "$RUN" "$MARK" <<'PYTHON'
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen([sys.argv[1], "-np", "2", "bash", "-c",
                        "trap '' INT; exec -a %s sleep 60" % sys.argv[2]], stderr=subprocess.PIPE, text=True)
deadline = time.monotonic() + 30
while len(subprocess.run(["pgrep", "-f", "^" + sys.argv[2]], stdout=subprocess.PIPE).stdout.split()) < 2:
    assert time.monotonic() < deadline, "they did not start"
    time.sleep(0.1)
run.send_signal(signal.SIGINT)
said = run.stderr.readline()    # two signals at once would count as one
while "once more" not in said:
    assert said, "it ended at the first SIGINT"
    said = run.stderr.readline()
time.sleep(0.5)    # time for hvdrun to end too early
assert run.poll() is None, "the first SIGINT only goes to the ranks"
run.send_signal(signal.SIGINT)
_, err = run.communicate(timeout=60)
assert run.returncode == 130, (run.returncode, err)
PYTHON
    nothing_left
}

killed_rank() {
    "$RUN" -np 2 bash -c "$(sleeper)" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 2 && kill -9 "$(pgrep -f "^$MARK" | tail -n 1)"
    wait "$pid" || rc=$?
    [ "$rc" -eq 137 ] && says 'was ended by signal 9 (SIGKILL)' "$TMP/2" && nothing_left
}

killed_agent() {
    "$RUN" -np 2 bash -c "($(sleeper)) & $(sleeper)" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 4 && kill -9 "$(pgrep -P "$pid" hvd-agent)"
    wait "$pid" || rc=$?
    [ "$rc" -eq 1 ] && says 'hvd-agent was ended by signal 9' "$TMP/2" && nothing_left
}

killed_hvdrun() {
    "$RUN" -np 2 bash -c "trap '' TERM; ($(sleeper)) & $(sleeper)" 2>"$TMP/2" &
    local pid=$! i
    until_marked 4 && kill -9 "$pid"
    wait "$pid"
    sleep 2 # time for the agent to end the ranks too early
    marked || { echo "they ended at once"; return 1; }
    nothing_left
}

control_frames() {
    code 0 "$RUN" -np 4 $CTL >"$TMP/1" && [ "$(grep -c 'ok size 4 local 4' "$TMP/1")" -eq 4 ]
}

control_twice() { code 0 "$RUN" -np 3 $CTL again; }

left_early() {
    code 7 "$RUN" -np 3 $CTL early 1 >"$TMP/1" 2>"$TMP/2" &&
        [ "$(grep -c 'lost 1 code 0: rank 1 .* left early' "$TMP/1")" -eq 2 ] &&
        says 'rank 1 .* left early: .* while other ranks still worked with it' "$TMP/2" &&
        says 'because of that, rank [02] .* exited with code 7' "$TMP/2"
}

died() {
    code 137 "$RUN" -np 3 $CTL die 2 >"$TMP/1" && [ "$(grep -c 'lost 2 code -9' "$TMP/1")" -eq 2 ]
}

never_came() {
    code 7 "$RUN" -np 3 --start-timeout 4 $CTL never 1 >"$TMP/1" 2>"$TMP/2" &&
        says 'hvdrun: before that, ranks 1 (localhost) did not call hvd_init within 4 s; ranks 0, 2 (localhost)' "$TMP/2" &&
        [ "$(grep -c 'lost instead of a roster: ranks 1 (localhost) did not call' "$TMP/1")" -eq 2 ]
}

ended_before_init() {
    code 7 "$RUN" -np 3 $CTL late 0 >"$TMP/1" && [ "$(grep -c 'lost 0 code 0' "$TMP/1")" -eq 2 ]
}

real_ranks() {
    [ -x "$SUM" ] || { echo "no $SUM"; return 1; }
    code 0 "$RUN" -np 4 "$SUM" 3 1
}

# The membership socket needs the token.
socket_is_private() {
    "$RUN" -v -np 1 bash -c "$(sleeper)" 2>"$TMP/2" &
    local pid=$! socket rc=0
    until_marked 1
    socket=$(sed -n 's/.*membership socket //p' "$TMP/2")
    [ "$(stat -c %a "$socket")" = 600 ] && [ "$(stat -c %a "$(dirname "$socket")")" = 700 ] || rc=1
    if command -v curl >/dev/null; then
        [ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$socket" http://x/v1/status)" = 401 ] || rc=1
        [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer 00' --unix-socket "$socket" http://x/v1/status)" = 401 ] || rc=1
        [ "$(stat -c %a "$(dirname "$socket")/token")" = 600 ] || rc=1
        curl -s -H "Authorization: Bearer $(cat "$(dirname "$socket")/token")" --unix-socket "$socket" \
            http://x/v1/status | grep -q '"size":1.*"state":"running"' || rc=1
    fi
    tr '\0' ' ' <"/proc/$(pgrep -P "$pid" hvd-agent)/cmdline" | grep -q ' .' && rc=1 # no arguments at all
    kill -TERM "$pid"
    wait "$pid"
    [ $rc -eq 0 ] && nothing_left
}

check output output
check files files
check no-prefix no_prefix
check unfinished-line unfinished
check much-output much
check late-reader late_reader
check slow-reader slow_reader
check stopped-reader stopped_reader
check stopped-disk stopped_disk
check reader-gone reader_gone
check full-disk full_disk
check closed-streams closed_streams
check script-goes-on script_goes_on
check stdin stdin_is_null
check environment environment
check first-failure first_failure
check by-signal by_signal
check stubborn at_best stubborn
check not-found not_found
check not-executable not_executable
check exec-waits at_best exec_waits
check too-many too_many
check stopped-hvdrun stopped_hvdrun
check grandchildren grandchildren
check signal-TERM at_best forwarded TERM
check signal-HUP at_best forwarded HUP
check signal-QUIT at_best forwarded QUIT
check signal-USR1 at_best forwarded USR1
check signal-USR2 at_best forwarded USR2
check interrupted-twice interrupted
check killed-rank killed_rank
check killed-agent killed_agent
check killed-hvdrun killed_hvdrun
check control-frames control_frames
check init-twice control_twice
check left-early at_best left_early
check died at_best died
check never-came at_best never_came
check ended-before-init at_best ended_before_init
check real-ranks real_ranks
check private-socket socket_is_private
exit $failed
