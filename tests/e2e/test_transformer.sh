#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/transformer_torch.py, a model split over ranks by data, tensor and pipeline sets: on 8 ranks (2 x 2 x 2) the losses
# of one process to 1e-5 in each of 200 steps, although ranks are killed and replaced; on 4 ranks in two other splits, also
# if all copies of the model are lost; and splits that do not fit.
# timeout: 900
# takes: 60 s
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
PY=${PY:-/usr/bin/python3}
EXAMPLE=$ROOT/examples/transformer_torch.py
HVD_LIBRARY=$BUILD/libhvd.so
PYTHONPATH=$ROOT/core/python
export HVD_LIBRARY PYTHONPATH OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 HVD_DOCTOR=off HVD_LOG_LEVEL=warn

"$PY" -c 'import torch' 2>/dev/null || skip_all python3-torch "$PY cannot import it"

alone() {
    timeout -k 5 100 "$PY" "$EXAMPLE" --exact >"$TMP/alone" || return
    awk '
        $1 == "exact" { loss[++n] = $4 }
        END { print "loss " loss[1] " to " loss[n]; exit !(n == 200 && loss[n] < loss[1] / 2) }' "$TMP/alone"
}

# same FILE STEPS: its losses are those of one process in the first STEPS steps
same() {
    awk -v steps="$2" '
        $1 != "exact" { next }
        FILENAME == ARGV[1] { alone[$2] = $4; next }
        {
            seen++
            d = $4 - alone[$2]
            d = d < 0 ? -d : d
            if (d > most) most = d
            if (!($2 in alone) || !(d <= 1e-5)) { print "step " $2 ": loss " $4 ", alone " alone[$2]; bad = 1 }
        }
        END {
            print seen " of " steps " steps, largest difference " most
            exit bad || seen != steps
        }' "$TMP/alone" "$1"
}

# split RANKS STEPS OPTION...: these ranks have the losses of one process in the first STEPS steps
split() {
    timeout -k 5 120 "$RUN" --no-prefix -np "$1" "$PY" "$EXAMPLE" --exact --steps "$2" "${@:3}" >"$TMP/split" || return
    same "$TMP/split" "$2"
}

last_step() { sed -n 's/^step  *\([0-9]*\)  loss.*/\1/p' "$TMP/log" | tail -n 1; }
past() { [ "$(last_step)" -ge "$1" ] 2>/dev/null; }

# trains_again N: all ranks have become complete N times, and a step was reported after that
trains_again() {
    awk -v n="$1" '
        /^step [0-9]*: 8 of 8 ranks train/ { back++ }
        back >= n && /^step  *[0-9]*  loss/ { seen = 1 }
        END { exit !seen }' "$TMP/log"
}

pid_of() { # PLACE, in the output of status on standard input
    awk -v place="$1" '
        $1 == "RANK" { for (i = 1; i <= NF; i++) column[$i] = i; next }
        ("PID" in column) && $column["PLACE"] == place { print $column["PID"]; exit }'
}

# kill_places PLACE...: kills the ranks at these places. A rank is found by its place, as ranks have other numbers once one
# of them is lost
kill_places() {
    local place pids=()
    "$RUN" status "$MARK-units" >"$TMP/status" || return
    for place in "$@"; do
        pids+=("$(pid_of "$place" <"$TMP/status")")
    done
    kill -KILL "${pids[@]}" && echo "places $* are lost after step $(last_step)"
}

# lossy CHANGES RANKS OPTION...: an elastic job, in which the function CHANGES kills ranks. Its output is in $TMP/log
lossy() {
    local ended rc=0 job
    : >"$TMP/log"
    timeout -k 5 400 "$RUN" --name "$MARK-units" --no-prefix --keep-places -np "$2" --min-np 2 --max-np "$2" \
        "$PY" "$EXAMPLE" --exact "${@:3}" >>"$TMP/log" 2>&1 &
    job=$!
    "$1" || rc=$?
    [ "$rc" -eq 0 ] || kill "$job"
    wait "$job"
    ended=$?
    grep -v ^exact "$TMP/log"
    echo "exit code of the changes $rc, of hvdrun $ended"
    [ "$rc$ended" = 00 ]
}

# Each rank is in a tensor set, a pipeline set and a data set. Ranks 1 and 3 are lost, which are one pipeline set and a part of
# two tensor sets; and rank 6 of the other copy, once the first copy has its state from there: the second one then gets it
# back from the first one.
lose_three() {
    wait_until 200 past 20 && kill_places 1 3 && wait_until 120 trains_again 1 &&
        kill_places 6 && wait_until 120 trains_again 2
}

# The ranks were complete again two times, after the first steps and long before the end.
refilled() {
    lossy lose_three 8 --pace 0.5 && same "$TMP/log" 200 || return
    sed -n 's/^step \([0-9]*\): 8 of 8 ranks.*/\1/p' "$TMP/log" |
        awk '$1 >= 20 && $1 <= 180 { n++ } END { exit !(n == 2 && NR == 2) }'
}

# Each part is lost in one of the two copies, so neither copy has the state. The copy that is whole first may begin anew
# alone.
lose_both_copies() { wait_until 200 past 0 && kill_places 0 3; }

begun_anew() {
    lossy lose_both_copies 4 --tensor 2 --steps 120 && count_of 1 '^step 0: [24] of 4 ranks train' "$TMP/log" &&
        same "$TMP/log" 120
}

unfit() { # WORDS RANKS OPTION...
    refused "error: $1" "$RUN" --no-prefix -np "$2" "$PY" "$EXAMPLE" "${@:3}"
}

check alone alone
check 2x2x2-and-lost-ranks-are-replaced refilled
sed -n 's/^.* largest/    largest/p' "$TMP/out"
check parts-and-copies-begin-anew begun_anew
check stages-alone split 4 20 --pipeline 4 --microbatches 8
check an-elastic-job-without-places refused 'start an elastic job with hvdrun --keep-places' \
    "$RUN" --no-prefix -np 2 --min-np 1 "$PY" "$EXAMPLE" --tensor 1
check ranks-that-do-not-fit unfit '2 ranks cannot be shared by 2 parts x 2 stages: start a multiple of 4' 2
check heads-that-do-not-fit refused 'error: --tensor 3 does not divide the 4 heads' "$PY" "$EXAMPLE" --tensor 3
check rows-that-do-not-fit refused 'error: the 24 rows of a step cannot be shared' "$PY" "$EXAMPLE" --microbatches 5
exit $failed
