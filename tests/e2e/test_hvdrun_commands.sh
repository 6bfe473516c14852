#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun's commands for running jobs, and the names of jobs: list, status, scale, drain, --name; the hosts of a discovery
# script. A refused command leaves the job unchanged.
# timeout: 300
# takes: 20 s, waiting
# shellcheck disable=SC2317,SC2016  # functions that check calls; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"

export HVD_RUN_DIR=$XDG_RUNTIME_DIR # a directory without this user's other jobs
jobs=()
end_jobs() {
    [ ${#jobs[@]} -eq 0 ] || kill -INT "${jobs[@]}" 2>/dev/null
    wait
    jobs=()
}
at_end+=(end_jobs)

# start OPTION...: starts a job whose ranks wait; $started is its hvdrun
start() {
    "$RUN" "$@" sh -c 'exec sleep 100' >"$TMP/job" 2>&1 &
    started=$!
    jobs+=("$started")
}

# until_listed NAME: waits until `hvdrun list` has a line that begins with NAME (a pattern) and goes on with "running" or 1
until_listed() {
    wait_until 20 lists "$1" || { echo "$1 is not listed"; return 1; }
}

lists() { "$RUN" list | grep -q "^$1  *\(running\|1 \)"; }

# stop PID: ends a job and waits until its directory is removed
stop() {
    kill -INT "$1"
    wait "$1"
    return 0
}

names() {
    end_jobs
    start -np 2
    local first=$started
    until_listed sh-1 || return 1
    [ "$("$RUN" --no-prefix sh -c 'echo $HVD_JOB')" = sh-2 ] || return 1
    [ "$("$RUN" --no-prefix --name mine sh -c 'echo $HVD_JOB')" = mine ] || return 1
    [ "$("$RUN" --no-prefix python3 -c 'import os; print(os.environ["HVD_JOB"])')" = python3-1 ] || return 1
    code 1 "$RUN" --name sh-1 true >"$TMP/1" 2>&1 || return 1
    says "hvdrun: there is a job sh-1 already (hvdrun $first): want another name" "$TMP/1" || return 1
    stop "$first"
    [ "$("$RUN" list)" = 'no job runs' ] && [ "$("$RUN" --no-prefix sh -c 'echo $HVD_JOB')" = sh-1 ]
}

six_named() { [ "$(cat "$TMP"/name.* | wc -l)" -ge 6 ]; }

# Jobs that start at the same moment get different names.
at_once() {
    local i pids=()
    rm -f "$TMP/all-named" "$TMP"/name.*
    for i in 1 2 3 4 5 6; do
        "$RUN" --no-prefix sh -c "echo \$HVD_JOB; until [ -e $TMP/all-named ]; do sleep 0.1; done" >"$TMP/name.$i" 2>&1 &
        pids+=($!)
    done
    wait_until 30 six_named
    touch "$TMP/all-named"
    wait "${pids[@]}"
    cat "$TMP"/name.*
    [ "$(cat "$TMP"/name.* | sort -u | wc -l)" -eq 6 ] && [ "$(cat "$TMP"/name.* | wc -l)" -eq 6 ]
}

listing() {
    end_jobs
    start -np 2 --name one
    local one=$started
    until_listed one || return 1
    start -np 1 --min-np 1 --max-np 3 --name two
    local two=$started
    until_listed two || return 1
    "$RUN" list >"$TMP/1" && "$RUN" list --json >"$TMP/2" && cat "$TMP/1" "$TMP/2" || return 1
    says '^NAME *STATE *RANKS *EPOCH' "$TMP/1" && says "^one  *running .* $one  sh -c exec sleep 100$" "$TMP/1" || return 1
    ${PY:-/usr/bin/python3} - "$TMP/2" "$two" <<'PY' || return 1
import json, sys
jobs = json.load(open(sys.argv[1]))
two = next(j for j in jobs if j["name"] == "two")
assert two["pid"] == int(sys.argv[2]) and two["np"] == 1 and two["command"].startswith("sh -c"), two
PY
    "$RUN" status one >"$TMP/1" && says '^one: running, no rank is in a world yet, 2 started' "$TMP/1" &&
        says '^   1 *1  localhost .* running$' "$TMP/1" || return 1
    code 1 "$RUN" status >"$TMP/1" 2>&1 && says 'which job? There are one, two' "$TMP/1" || return 1
    stop "$one"
    "$RUN" status >"$TMP/1" && says '^two: ' "$TMP/1" && "$RUN" status two --json | grep -q '"ranks"' || return 1
    kill -0 "$two" && stop "$two"
}

# Each refused command leaves the job running.
refusals() {
    end_jobs
    start -np 2 --name fixed
    local job=$started dir
    until_listed fixed || return 1
    dir=$(echo "$XDG_RUNTIME_DIR"/hvdrun-*)
    refused 'hvdrun scale: no job "nope"; jobs here: fixed' "$RUN" scale nope 3 &&
        refused 'hvdrun drain: no job "nope"; jobs here: fixed' "$RUN" drain nope 0 &&
        refused 'hvdrun status: no job "nope"; jobs here: fixed' "$RUN" status nope &&
        refused '"0": want a number of ranks from 1' "$RUN" scale fixed 0 &&
        refused '"-2": want a number of ranks from 1' "$RUN" scale fixed -2 &&
        refused '"2x": want a number of ranks' "$RUN" scale fixed 2x &&
        refused 'hvdrun scale: job fixed: this job has a fixed size' "$RUN" scale fixed 3 &&
        refused 'hvdrun drain: job fixed: this job has a fixed size' "$RUN" drain fixed 1 &&
        refused 'hvdrun drain: job fixed: this job has a fixed size' "$RUN" drain fixed nohost || return 1
    cp -p "$dir/token" "$TMP/token" && echo wrong >"$dir/token" || return 1
    refused "the token in $dir/token is not that of this job" "$RUN" scale fixed 2 &&
        refused "the token in $dir/token is not that of this job" "$RUN" status fixed || return 1
    "$RUN" list | grep -q '^fixed  *no access' && cp -p "$TMP/token" "$dir/token" &&
        "$RUN" status fixed | grep -q ' 2 started' && kill -0 "$job" && stop "$job"
}

# Changes of a training job's size, and refusals.
changes() {
    end_jobs
    CTL_SECONDS=250 "$RUN" --doctor off --name elastic -np 2 --min-np 2 --max-np 4 "${PY:-/usr/bin/python3}" \
        "$ROOT/tests/e2e/ctl_elastic.py" "$TMP/end" >"$TMP/1" 2>"$TMP/err" &
    local job=$! rc=0
    jobs+=("$job")
    until_listed 'elastic  *[a-z]*  *2 of 2' || return 1
    # Joiners are held, so that they enter in the same epoch.
    touch "$TMP/end.hold"
    (
        wait_until 30 count_of 2 'numbers: epoch' "$TMP/1"
        rm "$TMP/end.hold"
    ) &
    "$RUN" scale elastic 4 --wait 60 >"$TMP/2" && says '^change 1: 2 -> 4 ranks$' "$TMP/2" &&
        says '^change 1 is in effect: epoch 2, 4 ranks, after ' "$TMP/2" || return 1
    "$RUN" status elastic >"$TMP/2" && says '4 of 4 ranks (2 to 4), epoch 2' "$TMP/2" &&
        says '  last change   .* ago, in .* ms: scaled from 2 to 4 ranks; 2 ranks joined$' "$TMP/2" || return 1
    refused '5 ranks would be more than the job.s maximum of 4' "$RUN" scale elastic 5 &&
        refused '1 ranks would be less than the job.s minimum of 2' "$RUN" scale elastic 1 &&
        refused 'no rank 4: the job has ranks 0 to 3' "$RUN" drain elastic 4 &&
        refused 'no host "nohost": the job.s hosts are localhost' "$RUN" drain elastic nohost &&
        refused '0 ranks would be less than the job.s minimum of 2' "$RUN" drain elastic localhost || return 1
    "$RUN" status elastic | grep -q '4 of 4 ranks (2 to 4), epoch 2' || return 1
    "$RUN" drain elastic 1 --wait=60 >"$TMP/2" && says '^change 2: rank 1 leaves$' "$TMP/2" &&
        says '^change 2 is in effect: epoch 3, 3 ranks' "$TMP/2" || return 1
    [ "$("$RUN" scale elastic 2 --json)" = '{"change":3,"np":2}' ] && "$RUN" scale elastic 2 --wait 60 >"$TMP/2" &&
        says '^change 3: 2 ranks, as before$' "$TMP/2" && says 'epoch 4, 2 ranks' "$TMP/2" || return 1
    touch "$TMP/end"
    wait "$job" || rc=$?
    cat "$TMP/err"
    [ "$rc" -eq 0 ] && [ "$(grep -c '^hvdrun: epoch' "$TMP/err")" -eq 3 ] && nothing_left
}

# The job of a killed hvdrun is listed as long as it has an agent, which removes its directory at the end.
killed() {
    end_jobs
    HVD_COORDINATOR_LOST_SECONDS=10 start -np 1 --name lost # long enough for three commands
    local job=$started
    until_listed lost || return 1
    kill -KILL "$job"
    wait "$job" 2>/dev/null
    "$RUN" list >"$TMP/2" && says '^lost  *gone ' "$TMP/2" && says '^gone: .* hvdrun attach NAME' "$TMP/2" || return 1
    refused "job lost: its hvdrun (pid $job) is gone" "$RUN" status lost && nothing_left && [ "$("$RUN" list)" = 'no job runs' ]
}

watching() {
    end_jobs
    start -np 1 --name short
    local job=$started
    until_listed short || return 1
    : >"$TMP/watch"
    timeout 60 "$RUN" status --watch=0.2 short >>"$TMP/watch" 2>&1 &
    local watch=$!
    wait_until 30 count_of 2 '^short: running' "$TMP/watch"
    stop "$job"
    wait "$watch" && [ "$(grep -c '^short: running' "$TMP/watch")" -ge 2 ] && [ "$(tail -n 1 "$TMP/watch")" = 'short has ended' ]
}

# A program with the name of a command.
like_a_command() {
    mkdir -p "$TMP/path" && printf '#!/bin/sh\necho mine "$@"\n' >"$TMP/path/status" && chmod +x "$TMP/path/status" || return 1
    [ "$(PATH=$TMP/path:$PATH "$RUN" --no-prefix -- status x)" = 'mine x' ] &&
        [ "$("$RUN" --no-prefix "$TMP/path/status")" = mine ] &&
        [ "$(PATH=$TMP/path:$PATH "$RUN" --no-prefix -np 1 status y)" = 'mine y' ]
}

sets_shown() { "$RUN" status sets >"$TMP/1" && says "$1" "$TMP/1" >"$TMP/2"; }

# How many sets a rank is in, and its descriptors, as long as there are sets.
sets() {
    local py=${PY:-/usr/bin/python3} lib
    lib=$(realpath "$BUILD")/libhvd.so
    end_jobs
    cat >"$TMP/sets.py" <<PY
import os, time
import hvd
hvd.init()
sets = [hvd.add_process_set(ranks) for ranks in ([0, 2], [1, 2])]
for path in ("$TMP/sets.remove", "$TMP/sets.end"):
    while not os.path.exists(path):
        time.sleep(0.05)
    if path.endswith("remove"):
        for one in sets:
            hvd.remove_process_set(one)
hvd.shutdown()
PY
    HVD_LIBRARY=$lib PYTHONPATH=$PWD/core/python "$RUN" --name sets -np 3 "$py" "$TMP/sets.py" >"$TMP/job" 2>&1 &
    local job=$!
    jobs+=("$job")
    wait_until 30 sets_shown '^  sets          rank 2 is in 2; rank [0-2] has [1-9][0-9]* of at most [0-9]* descriptors$' &&
        "$RUN" status sets --json | grep -q '"sets": *1, *"descriptors": *[1-9]' && touch "$TMP/sets.remove" || return 1
    wait_until 30 no_sets_shown && touch "$TMP/sets.end" && wait "$job"
}

# The memory of shared segments, and a broken set with its ranks, until it is removed.
broken_sets() {
    local py=${PY:-/usr/bin/python3} lib job
    lib=$(realpath "$BUILD")/libhvd.so
    end_jobs
    cat >"$TMP/broken.py" <<PY
import array, os, signal, time
import hvd
from hvd._lib import check, lib
while os.path.exists("$TMP/broken.kill"):  # the replacement, which does nothing
    if os.path.exists("$TMP/broken.end"):
        os._exit(0)
    time.sleep(0.05)
hvd.init()
pair = hvd.add_process_set([1, 2])
if pair.included():
    pair.fix()
    hvd.allreduce(array.array("f", [1.0]), process_set=pair)
for path in ("$TMP/broken.kill", "$TMP/broken.remove", "$TMP/broken.end"):
    while not os.path.exists(path):
        time.sleep(0.05)
    if path.endswith("kill") and hvd.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if path.endswith("remove"):
        check(lib.hvd_commit())
        hvd.remove_process_set(pair)
hvd.shutdown()
PY
    HVD_LIBRARY=$lib PYTHONPATH=$PWD/core/python "$RUN" --name sets --min-np 2 -np 3 \
        "$py" "$TMP/broken.py" >"$TMP/job" 2>&1 &
    job=$!
    jobs+=("$job")
    wait_until 30 sets_shown '^  memory        shared segments on localhost take [0-9.]* [KM]iB; .*iB of .*iB are left there$' &&
        ! grep -q 'broken' "$TMP/1" && touch "$TMP/broken.kill" || return 1
    wait_until 30 sets_shown '^  broken set    set 1 (ranks 1, 2) has lost 1 of its 2 ranks, [0-9]* m*s ago: ' &&
        grep -q '^   1  .* active, 1 broken set$' "$TMP/1" && ! grep -q '^   0 .*broken' "$TMP/1" || return 1
    touch "$TMP/broken.remove"
    wait_until 30 no_sets_shown && ! grep -q broken "$TMP/1" && touch "$TMP/broken.end" && wait "$job"
}

communicators_counted() { curl -s "http://127.0.0.1:$1/metrics" | grep -q "^hvd_rank_communicators{rank=\"0\"} $2\$"; }

# Communicators of NCCL's and the memory of the GPU, by the fake driver and NCCL; host memory stands for that of the GPU.
communicators() {
    local py=${PY:-/usr/bin/python3} lib port job
    lib=$(realpath "$BUILD")
    port=$(free_port)
    end_jobs
    cat >"$TMP/gpu.py" <<PY
import array, ctypes, os, time
driver = ctypes.CDLL("$lib/tests/fake/cuda.so", ctypes.RTLD_GLOBAL)
rank = int(os.environ["HVD_RANK"])
os.environ["FAKE_CUDA"] = f"memory=67108864;unified=1;uuid={0x40 + rank}"
import hvd
from hvd import _lib
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
def add(number):
    data = (ctypes.c_float * 1000)()
    shape = ctypes.c_int64(1000)
    request = _lib.Request(kind=_lib.ALLREDUCE, name=b"sum", input=ctypes.addressof(data), output=ctypes.addressof(data),
                           dtype=_lib.FLOAT32, ndim=1, shape=ctypes.pointer(shape), op=_lib.SUM, prescale=1, postscale=1,
                           device=0, output_rows=-1, set=number)
    handle = ctypes.c_int64()
    _lib.check(_lib.lib.hvd_submit_sized(ctypes.byref(request), _lib.REQUEST_BYTES, 1, ctypes.byref(handle)))
    _lib.check(_lib.lib.hvd_wait(handle))
    _lib.lib.hvd_release(handle)
hvd.init()
sets = [hvd.add_process_set(ranks) for ranks in ([0, 1], [0, 2])]
for one in sets:
    if one.included():
        add(one.process_set_id)
for path in ("$TMP/gpu.remove", "$TMP/gpu.end"):
    while not os.path.exists(path):
        time.sleep(0.05)
    if path.endswith("remove"):
        hvd.remove_process_set(sets[1])
        if rank < 2:
            add(sets[0].process_set_id)
hvd.shutdown()
PY
    HVD_LIBRARY=$lib/libhvd.so PYTHONPATH=$PWD/core/python HVD_NCCL_LIB=$lib/tests/fake/nccl-2.27/libnccl.so.2 \
        HVD_KERNELS=/proc/self/exe FAKE_NCCL_MEMORY=4194304 \
        "$RUN" --name sets --metrics "127.0.0.1:$port" -np 3 "$py" "$TMP/gpu.py" >"$TMP/job" 2>&1 &
    job=$!
    jobs+=("$job")
    wait_until 30 sets_shown "^  communicators rank 0 has 2 of NCCL's; 5[0-9.]* MiB of 64.0 MiB were left on its GPU\$" &&
        communicators_counted "$port" 2 &&
        "$RUN" status sets --json | grep -q '"communicators": *2, *"gpu_memory_left": *5[0-9]*, *"gpu_memory": *67108864' &&
        touch "$TMP/gpu.remove" || return 1
    wait_until 30 sets_shown "^  communicators rank [01] has 1 of NCCL's; [56][0-9.]* MiB of 64.0 MiB were left on its GPU\$" &&
        communicators_counted "$port" 1 && touch "$TMP/gpu.end" && wait "$job"
}

no_sets_shown() { "$RUN" status sets >"$TMP/1" && ! grep -q '^  sets' "$TMP/1"; }

# complete_with WORD...: bash's completions for the last word
complete_with() {
    bash -c '. agent/hvdrun.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hvdrun; echo "${COMPREPLY[*]}"' \
        - "$RUN" "$@"
}

completion() {
    end_jobs
    start -np 1 --name offered
    until_listed offered || return 1
    [ "$(complete_with st)" = status ] && [ "$(complete_with status '')" = offered ] &&
        [ "$(complete_with scale off)" = offered ] && [ "$(complete_with scale offered '')" = '' ] &&
        [ "$(complete_with scale --w)" = --wait ] && [ "$(complete_with status --wat)" = --watch ] &&
        [ "$(complete_with --min-)" = '--min-np --min-num-proc' ] && [ "$(complete_with --bind-to n)" = 'numa none' ] &&
        [ "$(complete_with -np 2 st)" = '' ] && end_jobs
}

script() {
    printf '#!/bin/sh\n%s\n' "$1" >"$TMP/hosts.new" && chmod +x "$TMP/hosts.new" && mv "$TMP/hosts.new" "$TMP/hosts"
}

# The script's hosts and slots; --slots-per-host for hosts without slots; -np ranks, or as many as there are slots.
discovery() {
    script 'echo localhost:2'
    [ "$("$RUN" --no-prefix --host-discovery-script "$TMP/hosts" echo x | grep -c x)" -eq 2 ] || return 1
    [ "$("$RUN" --no-prefix --min-np 1 -np 4 --host-discovery-script "$TMP/hosts" echo x | grep -c x)" -eq 2 ] || return 1
    script 'echo localhost'
    [ "$("$RUN" --no-prefix --slots-per-host 3 --host-discovery-script "$TMP/hosts" echo x | grep -c x)" -eq 3 ] &&
        [ "$("$RUN" --no-prefix --slots 3 -np 1 --host-discovery-script "$TMP/hosts" echo x | grep -c x)" -eq 1 ]
}

# With too few slots hvdrun prints that it waits, and gives up after a limit.
discovery_waits() {
    script "[ -e '$TMP/more' ] && echo localhost:3 || echo localhost:1"
    : >"$TMP/2"
    timeout 60 "$RUN" --no-prefix --min-np 2 --host-discovery-script "$TMP/hosts" echo x >"$TMP/1" 2>>"$TMP/2" &
    wait_until 30 grep -q waiting "$TMP/2"
    sleep 1.5 # hvdrun runs the script again, and must not repeat its message
    touch "$TMP/more"
    wait $! || return 1
    cat "$TMP/2"
    [ "$(grep -c x "$TMP/1")" -eq 3 ] &&
        [ "$(grep -c waiting "$TMP/2")" -eq 1 ] && says 'waiting for hosts: .* names 1 slots, 2 are wanted' "$TMP/2" || return 1
    rm "$TMP/more"
    refused '/hosts names 1 slots after 1 s (--elastic-timeout), 2 are wanted' \
        "$RUN" --min-np 2 --elastic-timeout 1 --host-discovery-script "$TMP/hosts" echo x
}

check names names
check at-once at_best at_once
check list listing
check refusals refusals
check changes changes
check sets sets
check broken-sets broken_sets
check communicators communicators
check killed killed
check watch watching
check like-a-command like_a_command
check completion completion
check discovery discovery
check discovery-waits discovery_waits
check nothing-left nothing_left
exit $failed
