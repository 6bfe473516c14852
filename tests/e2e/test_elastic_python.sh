#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd.elastic and hvd.torch.elastic under hvdrun: ranks die before, in and after a step, join and leave. The ranks'
# records prove that every sample was used exactly once. A program written for Horovod, a plain loop, and the examples.
# timeout: 1200
# takes: 18 s
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
PY=${PY:-/usr/bin/python3}
HVD_LIBRARY=$BUILD/libhvd.so
PYTHONPATH=$ROOT/core/python
HVDRUN=$RUN
TMPDIR=$TMP # a killed multiprocessing leaves its folder there
export TMPDIR HVD_LIBRARY PYTHONPATH HVDRUN OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 HVD_DOCTOR=off

# job SIZES OPTION...: elastic_rank.py with the plan in HVD_TEST_PLAN. The world must have these sizes (a pattern,
# because on a busy machine joiners may come one after the other).
job() {
    local sizes=$1 rc=0
    shift
    rm -rf "$TMP/diary"
    mkdir "$TMP/diary"
    export HVD_TEST_JOB=$MARK-job
    timeout -k 5 120 "$RUN" --name "$HVD_TEST_JOB" "$@" \
        "$PY" tests/python/elastic_rank.py "$TMP/diary" 100 4 >"$TMP/said" 2>&1 || rc=$?
    cat "$TMP/said"
    echo "exit code $rc"
    "$PY" tests/python/elastic_rank.py check "$TMP/diary" 100 >"$TMP/found" || return 1
    cat "$TMP/found"
    [ "$rc" -eq 0 ] && grep -qE "sizes $sizes\$" "$TMP/found"
}

# planned PLAN CHANGES SIZES OPTION...: runs job with HVD_TEST_PLAN=PLAN and HVD_TEST_CHANGES=CHANGES
planned() {
    HVD_TEST_PLAN=$1 HVD_TEST_CHANGES=$2 job "${@:3}"
}

interrupted() {
    HVD_ELASTIC_INTERRUPT=1 planned "$@"
}

# shrinks SIZE PLAN CHANGES SIZES OPTION...: the first change of the world is to the world of the survivors, whether or not they
# reach a step in it before the replacement joins.
shrinks() {
    planned "${@:2}" && { grep -q "epoch 2: $1 ranks" "$TMP/said" || { echo "no epoch of $1 ranks"; return 1; }; }
}

check nothing-happens planned "" 0 '\[3\]' -np 3 --min-np 2
check fixed-job planned "" 0 '\[3\]' -np 3
check death-before-a-step shrinks '3 of 4' "0.5:before:1" 1 '\[4, [34].*\]' -np 4 --min-np 2
check death-after-a-step shrinks '3 of 4' "0.5:after:2" 1 '\[4, [34].*\]' -np 4 --min-np 2
check death-in-a-step shrinks '3 of 4' "0.3:in:3" 1 '\[4, [34].*\]' -np 4 --min-np 2
check death-of-rank-0 shrinks '3 of 4' "0.5:after:0" 1 '\[4, [34].*\]' -np 4 --min-np 2
check death-in-the-last-step shrinks '2 of 3' "0.44:before:1" 1 '\[3, [23].*\]' -np 3 --min-np 2
check two-deaths-and-the-replacements shrinks '3 of 4' "0.5:before:1 1.3:after:2" 3 '\[4, [34], .*\]' -np 4 --min-np 2
check all-but-one-die planned "0.5:before:0 0.5:after:1 0.5:after:3" 2 '\[4, 1, .*\]' -np 4 --min-np 1
check everybody-dies planned "0.5:before:0 0.5:after:1" 0 '\[2\]' -np 2 --min-np 1 --max-np 9
check below-the-minimum planned "0.5:after:0" 1 '\[3, 3\]' -np 3 --min-np 3
# Joiners may come one after the other.
to_size() {
    HVD_TEST_SIZE=$1 planned "${@:2}"
}
check grow-and-shrink to_size 3 "0.5:5 =5.4:3" 2 '\[2, ([345], )+3\]' -np 2 --min-np 1 --max-np 6
check grow-from-one to_size 3 "0.2:3" 1 '\[1, (2, )?3\]' -np 1 --min-np 1 --max-np 3
check a-death-right-after-growing planned "0.5:5 1.0:before:0" 2 '\[3, [45], .*\]' -np 3 --min-np 1 --max-np 5
giving() {
    HVD_TEST_MEMORY=60000000 planned "$@"
}
check who-gives-the-state-dies giving "0.5:5 1.0:giving:0" 2 '\[3, [45], .*\]' -np 3 --min-np 1 --max-np 6
check all-that-give-it-die-but-one giving "0.5:5 1.0:giving:0 2.0:giving:1" 2 '\[3, [45], .*\]' \
    -np 3 --min-np 1 --max-np 6
check horovods-way interrupted "0.5:4 1.4:before:1" 2 '\[2, [34], .*\]' -np 2 --min-np 1 --max-np 4

# A fixed job: repair is impossible, and it cannot restart without the lost rank. It must say so.
lost_for_good() {
    rm -rf "$TMP/diary"
    mkdir "$TMP/diary"
    HVD_TEST_PLAN=0.5:after:1 HVD_START_TIMEOUT=2 \
        refused 'HvdError: .*timed out waiting for rank 1' "$PY" tests/python/ranks.py -k -t 50 3 \
        "$PY" tests/python/elastic_rank.py "$TMP/diary" 100 4
}
check a-fixed-job-that-loses-a-rank lost_for_good
check random-histories timeout 300 "$PY" tests/python/elastic_histories.py 8

if ! "$PY" -c 'import torch, sklearn' 2>/dev/null; then
    skip_part torch python3-torch "$PY cannot import torch and sklearn"
    exit $failed
fi

# moments RANKS GIVER: a joiner gets the optimizer's state
moments() {
    export HVD_TEST_JOB=$MARK-moments
    timeout -k 5 120 "$RUN" --name "$HVD_TEST_JOB" -np 3 --min-np 1 --max-np 4 \
        "$PY" tests/python/elastic_moments.py "$2" >"$TMP/log" 2>&1 || { cat "$TMP/log" && return 1; }
    cat "$TMP/log"
    [ "$(grep -c 'proved, [34] ranks' "$TMP/log")" -ge "$1" ]
}
check moments-follow moments 4 lives
check who-gives-the-moments-dies moments 3 dies

# line_of PATTERN: waits until the job has printed it
line_of() {
    wait_until 60 grep -q -- "$1" "$TMP/log" || { echo "no \"$1\""; return 1; }
}

# pid_of RANK: prints the rank's process id
pid_of() {
    "$RUN" status "$MARK-torch" | awk -v rank="$1" '$1 == rank && $5 ~ /^[0-9]+$/ { print $4 }'
}

# troubled END OPTION... -- ARGUMENT...: a program of torch loses a rank and then, with an option --max-np=N, grows to N.
# It must end well, with END as its last line.
troubled() {
    local end=$1 options=() rc=0 ended pid most
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    most=$(sed -n 's/.*--max-np=\([0-9]*\).*/\1/p' <<<"${options[*]}")
    : >"$TMP/log" # emptied here: the background command may start late, and line_of would read the previous program's lines
    timeout -k 5 200 "$RUN" --name "$MARK-torch" --no-prefix "${options[@]}" "$PY" "${@:2}" >>"$TMP/log" 2>&1 &
    job=$!
    line_of '^epoch  *3 ' && pid=$(pid_of 1) && [ -n "$pid" ] && kill -KILL "$pid" && line_of "pid $pid) was ended"
    rc=$?
    if [ "$rc" -eq 0 ] && [ -n "$most" ]; then
        "$RUN" scale "$MARK-torch" "$most" && line_of "^epoch  *[0-9].* on $most ranks\\|^epoch .* size $most"
        rc=$?
    fi
    wait "$job"
    ended=$?
    [ "$ended$rc" = 00 ] && grep -v '^hvdrun:\|^hvd\[' "$TMP/log" | tail -n 1 | grep -q -- "$end" && return
    echo "exit code of the changes $rc, of hvdrun $ended"
    cat "$TMP/log"
    return 1
}

accurate='^epoch .*accuracy \(0\.9[4-9]\|1\)'
check digits_elastic-with-data-loader-workers troubled "$accurate" -np 3 --min-np 2 --max-np=5 \
    -- examples/digits_elastic.py --epochs 12 --await-ranks 5 --workers 1 --pace 0.7
# The same with tensors on a GPU of the fake driver (tests/python/gpu_mode.py).
staged() { HVD_TEST_GPU=fake HVD_BACKEND=staged troubled "$@"; }
nccl() { HVD_TEST_GPU=fake HVD_NCCL_LIB=$BUILD/tests/fake/nccl-2.27/libnccl.so.2 troubled "$@"; }
for way in staged nccl; do
    check digits_elastic-$way $way "$accurate" -np 2 --min-np 1 --max-np=3 \
        -- tests/python/on_gpu.py examples/digits_elastic.py --epochs 10 --await-ranks 3 --pace 0.7
done
check a-plain-loop troubled "$accurate" -np 3 --min-np 2 -- examples/digits_torch.py --epochs 20
check written-for-horovod troubled '^done: loss 0.0.* on 5 ranks' -np 3 --min-np 2 --max-np=5 \
    -- tests/python/horovod_script.py 10 5
# four_end PROGRAM: all of four ranks end well, one of which takes the place of a rank that kills itself.
four_end() {
    timeout -k 5 120 "$RUN" --name "$MARK-four" -np 4 --min-np 3 --max-np 4 "$PY" "$1" >"$TMP/said" 2>&1
    local rc=$?
    [ "$rc" -eq 0 ] && [ "$(grep -c ': ok$' "$TMP/said")" -eq 4 ] && return
    echo "exit code $rc"
    cat "$TMP/said"
    return 1
}
check process-sets four_end tests/python/elastic_sets.py
check join-and-messages four_end tests/python/elastic_uneven.py
check nothing-left nothing_left
exit $failed
