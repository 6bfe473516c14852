#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun's input: job files, host files, --check-build, bindings, and bad input: one line that names the place and the
# reason, an exit code, no process left.
# timeout: 600
# takes: 17 s, waiting
# shellcheck disable=SC2317,SC2016  # functions that check calls; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"

# bad CODE WORDS ARGUMENT...: hvdrun with these arguments must end with CODE and print one line with WORDS
bad() {
    local want=$1 words=$2 rc=0
    shift 2
    timeout 60 "$RUN" "$@" >"$TMP/bad" 2>&1 || rc=$?
    cat "$TMP/bad"
    [ "$rc" -eq "$want" ] && grep -qF -- "hvdrun: $words" "$TMP/bad" && [ "$(wc -l <"$TMP/bad")" -eq 1 ] &&
        [ -z "$(ls "$XDG_RUNTIME_DIR")" ]
}

job() {
    cat <<'YAML'
apiVersion: hvd.dev/v1alpha1
kind: HvdJob
metadata:
  name: digits
spec:
  workers: 2
  slotsPerWorker: 2
  template:
    spec:
      containers:
      - name: train
        image: example/train
        command: [sh, -c]
        args:
        - 'echo $HVD_RANK/$HVD_SIZE $HVD_JOB $GREETING in $PWD'
        env:
        - name: GREETING
          value: hello you
        workingDir: /usr
        resources:
          limits: {cpu: 1}
YAML
}

# job_bad WORDS SED-SCRIPT: the edited job file is refused
job_bad() {
    job | sed "$2" >"$TMP/bad.yaml"
    bad 2 "$TMP/bad.yaml:$1" -f "$TMP/bad.yaml"
}

job_runs() {
    job >"$TMP/job.yaml"
    timeout 60 "$RUN" -f "$TMP/job.yaml" >"$TMP/1" 2>"$TMP/2" &&
        [ "$(sort "$TMP/1" | sed -n 4p)" = "[3]<stdout>:3/4 digits hello you in /usr" ] &&
        [ "$(cat "$TMP/2")" = "hvdrun: $TMP/job.yaml: for a cluster, ignored here: image, resources" ]
}

# $(NAME) from the container's env, in the order of the file; -x takes precedence over the file.
job_expands() {
    job | sed -e 's/^        - .echo .*/        - "echo $(GREETING) $(B) $$(B) $(HOME) $(LR)"/' -e 's/workers: 2/workers: 1/;s/Worker: 2/Worker: 1/' \
        -e 's/^        workingDir/        - {name: B, value: "<$(GREETING)> $(LATER)"}\n        - {name: LR, value: "1"}\n&/' \
        -e 's/hello you/hello/' -e 's/\[sh, -c\]/[echo]/' >"$TMP/job2.yaml"
    timeout 60 "$RUN" -x LR=5 -f "$TMP/job2.yaml" --no-prefix >"$TMP/1" 2>"$TMP/2" || return 1
    cat "$TMP/1"
    [ "$(cat "$TMP/1")" = 'echo hello <hello> $(LATER) $(B) $(HOME) 5' ]
}

hostfile() {
    printf '# two names of this machine\nlocalhost slots=2 # first\n\n127.0.0.1 slots=1\n' >"$TMP/hosts"
    [ "$(timeout 60 "$RUN" --hostfile "$TMP/hosts" --no-prefix sh -c 'echo $HVD_LOCAL_SIZE' | sort -u)" = 3 ]
}

check_build() {
    timeout 60 "$RUN" --check-build >"$TMP/1" && grep -qx 'Available Controllers:' "$TMP/1" &&
        grep -qx '    \[X\] hvdrun' "$TMP/1" && grep -q '    \[[X ]\] PyTorch' "$TMP/1" &&
        grep -qx '    \[X\] TCP' "$TMP/1" && { [ ! -e "$BUILD/libhvd_mpi.so" ] ||
        grep -q '    \[X\] MPI (Open MPI [0-9.]*, /.*libmpi.so.*; HVD_BACKEND=mpi uses it)' "$TMP/1"; }
}

bindings() {
    local cores
    cores=$(nproc)
    timeout 60 "$RUN" -np 1 --report-bindings true 2>&1 | grep -q '^rank 0 on localhost: bound to [0-9]* cores*: cpus [0-9]' || return 1
    timeout 60 "$RUN" -np $((cores + 1)) --report-bindings true 2>&1 | grep -q "not bound: $((cores + 1)) ranks on" &&
        timeout 60 "$RUN" -np 1 --bind-to none --report-bindings true 2>&1 | grep -q 'not bound: --bind-to none'
}

# The option, otherwise the variable, otherwise 30 s.
start_timeout() {
    local seconds='echo $HVD_START_TIMEOUT'
    [ "$("$RUN" --no-prefix sh -c "$seconds")" = 30 ] &&
        [ "$(HVD_START_TIMEOUT=70 "$RUN" --no-prefix sh -c "$seconds")" = 70 ] &&
        [ "$(HOROVOD_START_TIMEOUT=0.5 "$RUN" --no-prefix sh -c "$seconds")" = 1 ] &&
        [ "$(HVD_START_TIMEOUT=70 "$RUN" --start-timeout 80 --no-prefix sh -c "$seconds")" = 80 ] &&
        HVD_START_TIMEOUT=soon bad 2 'HVD_START_TIMEOUT: "soon": want a number from 0.1' ls
}

# With a read-only root file system the socket is in /dev/shm. If that is not writable either, hvdrun says so.
read_only_root() {
    local first="cd / && mount --bind '$TMP/bin' /mnt && mount -t tmpfs -o ro none /tmp &&
        mount -t tmpfs none /dev/shm" then='exec env -u XDG_RUNTIME_DIR -u TMPDIR /mnt/hvdrun'
    cp "$RUN" "$BUILD/hvd-agent" "$TMP/bin" || return 1
    [ "$(unshare --mount sh -c "$first && $then --no-prefix ls /dev/shm" | grep -c '^hvdrun-')" = 1 ] || return 1
    unshare --mount sh -c "$first && mount -o remount,ro /dev/shm && $then true" >"$TMP/bad" 2>&1 && return 1
    cat "$TMP/bad"
    [ "$(cat "$TMP/bad")" = "hvdrun: none of XDG_RUNTIME_DIR, TMPDIR, /tmp and /dev/shm can hold hvdrun's socket: set HVD_RUN_DIR to a writable directory" ]
}

help_and_version() {
    "$RUN" --help | grep -q 'usage: hvdrun' && "$RUN" --version | grep -qx 'hvdrun [0-9.]*' &&
        "$BUILD/hvd-agent" --help | grep -q 'usage: hvd-agent' && "$RUN" --explain-states | grep -q '^active *bye *left'
}

# hvdrun warns once of misspelt settings, with the nearest name. Other variables of the user are not mentioned.
misspelt() {
    HVD_FUSION_TRESHOLD=1M HVD_MINE=1 "$RUN" -np 3 -x HVD_CYCLE_TMIE=1 true >"$TMP/1" 2>&1 || return 1
    cat "$TMP/1"
    [ "$(grep -c 'HVD_FUSION_TRESHOLD is no setting and changes nothing: is HVD_FUSION_THRESHOLD meant' "$TMP/1")" = 1 ] &&
        [ "$(grep -c 'is HVD_CYCLE_TIME meant' "$TMP/1")" = 1 ] && [ "$(wc -l <"$TMP/1")" = 2 ] || return 1
    # Without hvdrun rank 0 warns.
    local port
    port=$(free_port)
    for r in 0 1; do
        HVD_FUSION_TRESHOLD=1M HVD_RANK=$r HVD_SIZE=2 HVD_RENDEZVOUS=127.0.0.1:$port "$SUM" >"$TMP/by-hand.$r" 2>&1 &
    done
    wait
    grep -q 'is HVD_FUSION_THRESHOLD meant' "$TMP/by-hand.0" && ! grep -q meant "$TMP/by-hand.1"
}

wrong_simd() {
    HVD_SIMD=avx9 bad 2 'HVD_SIMD: "avx9": want scalar, avx2, avx512 or neon' true &&
        refused 'HVD_SIMD=avx9: want scalar, avx2' env HVD_SIMD=avx9 "$SUM"
}

# core/base/known.c must have every setting that the sources read and the README lists.
settings_are_known() {
    local name
    {
        grep -rhoE '(env_(get|int|size|bool|double)|read_(seconds|u32)|find_setting\(job, )\(?"[A-Z_]+"' core agent --include='*.c'
        grep -rhoE '"HVD_[A-Z_]+"' agent core/engine core/boot core/backend core/python diagnostics operator \
            --include='*.c' --include='*.py' | sed 's/HVD_//'
        sed -n '/^## Settings/,/^## Licence/s/^| \([A-Z_]*\) |.*/"\1"/p' README.md
    } | sed 's/.*"\([A-Z_]*\)"/\1/' | sort -u | grep -v '^TEST_\|^$' >"$TMP/names"
    [ "$(wc -l <"$TMP/names")" -gt 40 ] || return 1
    while read -r name; do
        grep -q "^    \"$name\",$" core/base/known.c || { echo "HVD_$name is not in core/base/known.c"; return 1; }
    done <"$TMP/names"
}

twice_verbose() {
    "$RUN" -vv --doctor off true 2>&1 | grep -q 'hvdrun: all 1 ranks run'
}

agent_alone() {
    local rc=0
    echo '{"agent": 1}' | timeout 60 "$BUILD/hvd-agent" >"$TMP/1" 2>&1 || rc=$?
    cat "$TMP/1"
    [ "$rc" -eq 1 ] && grep -q 'hvd-agent: error: configuration: ' "$TMP/1"
}

printf '#!/no/such/interpreter\n' >"$TMP/script" && chmod +x "$TMP/script"
check misspelt-settings misspelt
check wrong-simd wrong_simd
check settings-are-known settings_are_known
check twice-verbose twice_verbose
check job job_runs
check job-expands job_expands
check job-workers job_bad '6: spec.workers: "two": want an integer from 1 to 65536' 's/workers: 2/workers: two/'
check job-kind job_bad '2: kind: want HvdJob' 's/HvdJob/Job/'
check job-version job_bad '1: apiVersion: want hvd.dev/v1alpha1' 's/v1alpha1/v7/'
check job-command job_bad '13: spec.template.spec.containers[0].command: want a list of texts' 's/\[sh, -c\]/sh/'
check job-env job_bad '17: spec.template.spec.containers[0].env: an entry without name' 's/- name: GREETING/- nam: GREETING/'
check job-twice job_bad '7: workers: given twice' 's/slotsPerWorker/workers/'
check job-field job_bad '6: spec.worker: no such field; did you mean workers?' 's/workers:/worker:/'
check job-syntax job_bad '9: ' 's/slotsPerWorker: 2/slotsPerWorker: [/'
check job-empty job_bad '1: HvdJob: the file is empty' d
check job-missing bad 2 "job file $TMP/none.yaml: No such file or directory" -f "$TMP/none.yaml"
check job-and-command bad 2 'a command (ls) and a job file' -f "$TMP/job.yaml" ls
check hostfile hostfile
printf 'localhost slots=2\nother slots=x\n' >"$TMP/badhosts"
check bad-hostfile bad 2 "--hostfile: host file $TMP/badhosts:2: \"x\": want a number of slots" --hostfile "$TMP/badhosts" ls
check no-hostfile bad 2 '--hostfile: host file /none: No such file' --hostfile /none ls
check no-command bad 2 'no command to run' -np 2
check unknown-option bad 2 'unknown option --foo; see hvdrun --help' --foo ls
check np-0 bad 2 '-np: "0": want an integer from 1' -np 0 ls
check np-text bad 2 '-np: "4x": want an integer' -np 4x ls
check np-missing bad 2 '-np needs N' -np
check min-max bad 2 '--min-np 3 is more than --max-np 2' --min-np 3 --max-np 2 ls
check np-below-min bad 2 '-np 2 is less than --min-np 3' -np 2 --min-np 3 ls
check np-above-max bad 2 '-np 5 is more than --max-np 4' -np 5 --max-np 4 ls
check slots-below-min bad 2 'the number of slots 2 is less than --min-np 3' -H localhost:2 --min-np 3 ls
check min-0 bad 2 '--min-np: "0": want an integer from 1' --min-np 0 ls
check max-text bad 2 '--max-num-proc: "many": want an integer from 1' --max-num-proc many ls
check elastic-timeout bad 2 '--elastic-timeout: "0": want an integer from 1' --elastic-timeout 0 ls
check reset-limit bad 2 '--reset-limit: "-1": want an integer from 0' --reset-limit -1 ls
check cooldown-one bad 2 '--blacklist-cooldown-range needs MIN MAX' --blacklist-cooldown-range 10
check cooldown-text bad 2 '--blacklist-cooldown-range: "ls": want an integer from 1' --blacklist-cooldown-range 10 ls
check cooldown-order bad 2 '--blacklist-cooldown-range: 10 is more than 5: want MIN MAX' --blacklist-cooldown-range 10 5 ls
export HVD_ELASTIC_TIMEOUT=soon
check elastic-variable bad 2 'HVD_ELASTIC_TIMEOUT: "soon": want a number from 0.1' --min-np 1 ls
unset HVD_ELASTIC_TIMEOUT
check name-slash bad 2 '--name: "a/b": want a name without / and spaces' --name a/b ls
check job-min job_bad '6: spec.minWorkers: 3 is more than maxWorkers 2' 's/workers: 2/minWorkers: 3\n  maxWorkers: 2/'
check job-workers-outside job_bad '7: spec.minWorkers: 3 is more than workers 2' 's/workers: 2/workers: 2\n  minWorkers: 3/'
script() {
    printf '#!/bin/sh\n%s\n' "$1" >"$TMP/hosts.sh" && chmod +x "$TMP/hosts.sh"
}
# script_bad WORDS SCRIPT: no job starts with this discovery script
script_bad() {
    script "$2"
    bad 2 "host discovery script $TMP/hosts.sh: $1" --min-np 1 --host-discovery-script "$TMP/hosts.sh" ls
}
check script-missing bad 2 '--host-discovery-script: /none: No such file' --host-discovery-script /none ls
check script-no-program bad 2 "--host-discovery-script: $TMP/badhosts: Permission denied" --host-discovery-script "$TMP/badhosts" ls
check script-fails script_bad 'exit code 3' 'exit 3'
check script-garbage script_bad 'line 2: "no host": not a host name' 'echo localhost:2; echo no host'
check script-nothing script_bad 'it names no host' true
check script-hangs script_bad 'it did not end within 10 s: killed' 'exec sleep 600'
check script-and-hosts bad 2 'hosts and --host-discovery-script: want one of them' -H localhost:2 --host-discovery-script "$TMP/hosts.sh" ls
script 'echo localhost:2'
check script-slots bad 2 '-np 5 is more than --max-np 4' -np 5 --min-np 1 --max-np 4 --host-discovery-script "$TMP/hosts.sh" ls
check hosts-slots bad 2 '-H: "0": want a number of slots' -H localhost:0 ls
check hosts-empty bad 2 '-H: a host without a name' -H a:1,,b:1 ls
check hosts-dash bad 2 '-H: "-oProxyCommand=x": a host name cannot start with -' -H -oProxyCommand=x ls
check hosts-word bad 2 '-H: "a b": not a host name' -H 'a b:2' ls
check too-many bad 2 '3 ranks, but the hosts have 2 slots' -np 3 -H localhost:2 ls
check bind bad 2 '--bind-to: "socket": want core, numa or none' --bind-to socket ls
levels='want error, warn, info, debug or trace'
check hosts-no-name bad 2 '-H: "user@": not a host name' -H user@:2 ls
check job-no-name bad 2 '-f: an empty name' -f ''
check cycle-time bad 2 '--cycle-time-ms: "nan": want a number from 0' --cycle-time-ms nan ls
check cache-capacity bad 2 '--cache-capacity: "-5": want an integer from 0' --cache-capacity -5 ls
check stall-time bad 2 '--stall-check-warning-time-seconds: "1m": want a number' --stall-check-warning-time-seconds 1m ls
check no-identity bad 2 '-i: /none: No such file or directory' -i /none ls
check start-timeout start_timeout
mkdir "$TMP/bin"
if unshare --mount true 2>/dev/null; then
    check read-only-root read_only_root
else
    skip_part read-only-root namespaces 'no mount namespace here'
fi
check interpreter bad 126 "rank 0 on localhost: cannot run $TMP/script: the interpreter or loader that it names does not exist" "$TMP/script"
check log-level bad 2 "--log-level: \"foo\": $levels" --log-level foo true
check log-level-empty bad 2 "--log-level: \"\": $levels" --log-level= true
check log-level-x bad 2 "HVD_LOG_LEVEL: \"foo\": $levels" -x HVD_LOG_LEVEL=foo true
check log-level-good timeout 60 env HVD_LOG_LEVEL=foo "$RUN" --log-level Warning -np 1 true
export HVD_LOG_LEVEL=foo
check log-level-variable bad 2 "HVD_LOG_LEVEL: \"foo\": $levels" true
unset HVD_LOG_LEVEL
export HOROVOD_LOG_LEVEL=loud
check log-level-older bad 2 "HOROVOD_LOG_LEVEL: \"loud\": $levels" true
unset HOROVOD_LOG_LEVEL
check variable bad 2 "-x: hvdrun's environment has no variable NO_SUCH_ONE: set it, or write -x NO_SUCH_ONE=VALUE" \
    -x NO_SUCH_ONE ls
check output-dir bad 1 '/proc/none: No such file or directory' --output-filename /proc/none ls
check no-value bad 2 '-v|--verbose takes no value' --verbose=1 ls
check check-build check_build
check bindings bindings
check help help_and_version
check agent-alone agent_alone
exit $failed
