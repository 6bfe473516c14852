#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [NAME...]: checks the model of repair (README.md): the invariants in several settings, and planted
# bugs that must be found. Prints one line for each run: states, depth, seconds.
# timeout: 900
# takes: 300 s
#
# MODEL_SECONDS=n   time of each run that only samples (12); 0: until it ends by itself
# MODEL_DEPTH=n     steps of one history (10000; the longest seen is below 200)
# MODEL_MB=n        memory of one run (1500)
# MODEL_SEED=n      order of the search (1)
# MODEL_BITS=n      a sample remembers states in 2^n bits (30)
# MODEL_FULL=1      also complete searches that take minutes and gigabytes
set -u
cd "$(dirname "$0")" || exit 1
SECONDS_EACH=${MODEL_SECONDS:-12} DEPTH=${MODEL_DEPTH:-10000} MB=${MODEL_MB:-1500} BITS=${MODEL_BITS:-30}
CC=${CC:-gcc}

if ! command -v spin >/dev/null; then
    echo 'SKIP: model: spin: the model checker is not installed (Debian: spin)'
    exit 77
fi
TMP=$(mktemp -d "${TMPDIR:-/tmp}/hvd-model-XXXXXX")
trap 'rm -rf "$TMP"' EXIT
trap 'exit 1' INT TERM
wanted=" $* "
failed=0

# build NAME COMPILER-FLAGS SETTING...: builds $TMP/NAME/pan
build() {
    local dir=$TMP/$1 flags=$2
    shift 2
    mkdir "$dir" && cp ./*.pml "$dir" || return
    (
        cd "$dir" || exit
        spin -a "$@" repair.pml >spin.log 2>&1 || exit
        # shellcheck disable=SC2086
        $CC $flags -w -DSAFETY -DNOREDUCE -DVECTORSZ=2048 "-DMEMLIM=$MB" -o pan pan.c >cc.log 2>&1
    ) || {
        echo "FAILED $(basename "$dir"): it does not compile"
        cat "$dir"/*.log
        failed=1
        return 1
    }
}

# Prints the result of a run: "n states, depth d, t s"
figures() {
    awk -v t="$2" '
        / states, stored/ { states = $1 }
        /depth reached/ { sub(",", "", $6); depth = $6 }
        END { printf "%d states, depth %d, %.1f s", states, depth, t }' "$1"
}

# search NAME SECONDS PAN-ARGUMENTS...: runs pan with a time limit; output and time go to $TMP/NAME
search() {
    local dir=$TMP/$1 patience=$2 begin=$EPOCHREALTIME
    shift 2
    (cd "$dir" && timeout -s INT -k 10 "$patience" ./pan -n "-m$DEPTH" "$@" >out 2>&1)
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }' >"$dir/time"
}

wants() {
    [ "$wanted" = '  ' ] || [[ $wanted == *" $1 "* ]]
}

wrong() {
    echo "FAILED $1: $2"
    grep -E '^pan|error' "$TMP/$1/out" | cut -c 1-300
    [ ! -f "$TMP/$1/repair.pml.trail" ] || history "$1"
    failed=1
}

# Prints the history that leads to an error: process and action, one line for each step.
history() {
    local n pid who at file
    (cd "$TMP/$1" && ./pan -r 2>/dev/null) |
        sed -n 's/^ *\([0-9]*\):.*proc *\([0-9]*\) (\([a-z]*\)).*D_STEP\([0-9]*\).*/\1 \2 \3 \4/p' |
        while read -r n pid who at; do
            file=membership.pml
            [ "$who" != rank ] || file=rank.pml who="rank $((pid - 1))"
            [ "$who" != lane ] || file=gpu_lane.pml who="lane $((pid - 5))"
            printf '    %3d %-12s %s\n' "$n" "$who" "$(sed -n "${at}s,.*/\* *\(.*\) \*/.*,\1,p" $file)"
        done
}

# holds NAME SETTING...: visits every state
holds() {
    local name=$1 out=$TMP/$1/out
    wants "$name" || return 0
    build "$name" '-O1 -DCOLLAPSE' "${@:2}" || return
    search "$name" 1800
    if ! grep -q 'errors: 0' "$out"; then
        wrong "$name" 'does not hold'
    elif grep -qE 'max search depth too small|Search not completed|Interrupted|memory limit' "$out"; then
        wrong "$name" 'not all states were seen'
    else
        echo "ok $name: holds, $(figures "$out" "$(cat "$TMP/$name/time")"), all of them (${*:2})"
    fi
    rm -rf "${TMP:?}/$name"
}

# sampled NAME SETTING...: visits as many states as time allows
sampled() {
    local name=$1 out=$TMP/$1/out seen='as many as there was time for' factor
    wants "$name" || return 0
    build "$name" '-O1 -DBITSTATE -DT_RAND -DP_RAND' "${@:2}" || return
    search "$name" "$SECONDS_EACH" "-w$BITS" "-RS${MODEL_SEED:-1}"
    factor=$(sed -n 's/^hash factor: \([0-9.]*\).*/\1/p' "$out")
    grep -qE 'Search not completed|Interrupted' "$out" || seen='to the end'
    if ! grep -q 'errors: 0' "$out"; then
        wrong "$name" 'does not hold'
    else
        echo "ok $name: holds, $(figures "$out" "$(cat "$TMP/$name/time")"), $seen, bitstate, hash factor ${factor:-?} (${*:2})"
    fi
    rm -rf "${TMP:?}/$name"
}

# caught BUG SETTING...: plants a bug, which must be found
caught() {
    local name=$1 out=$TMP/$1/out
    wants "$name" || return 0
    build "$name" '-O0 -DCOLLAPSE' "-DBUG_$name" "${@:2}" || return
    search "$name" 300
    if grep -q 'errors: 1' "$out"; then
        echo "ok $name: caught, $(figures "$out" "$(cat "$TMP/$name/time")"): $(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$out" | cut -c 1-60)"
    else
        wrong "$name" 'a planted bug that the model does not catch'
    fi
    rm -rf "${TMP:?}/$name"
}

# ---- invariants; all settings have deaths, zombies and deaths during a repair --------------------
holds slices -DDEATHS=2
holds behind -DDEATHS=2 -DK0=BEHIND -DK1=SLICES
holds alarm -DDEATHS=1 -DFALSE_ALARMS=1
holds restart -DDEATHS=1 -DRESTARTS=1
holds join -DDEATHS=1 -DCOMMIT=0 -DK0=WHOLE
holds leave -DDEATHS=1 -DLEAVE=2
holds leave-end -DDEATHS=2 -DLEAVE=1
holds leave-restart -DDEATHS=1 -DLEAVE=1 -DRESTARTS=1
holds gpu-hosts -DDEATHS=2 -DGPU=2 -DNOPS=0 -DGPU_HOSTS
holds gpu-leave -DDEATHS=1 -DGPU=2 -DNOPS=0 -DLEAVE=2
holds gpu-restart -DDEATHS=1 -DGPU=2 -DNOPS=0 -DRESTARTS=1
holds gpu-alarm -DDEATHS=1 -DGPU=2 -DNOPS=0 -DFALSE_ALARMS=1
sampled gpu-join -DDEATHS=1 -DGPU=2 -DNOPS=1 -DCOMMIT=0 -DK0=WHOLE
sampled gpu-both -DDEATHS=2 -DGPU=2 -DLEAVE=2 -DRESTARTS=1 -DFALSE_ALARMS=1
sampled leave-all -DDEATHS=2 -DLEAVE=2 -DRESTARTS=1 -DFALSE_ALARMS=1
sampled whole -DDEATHS=2 -DRESTARTS=1 -DCOMMIT=1 -DNOPS=3
sampled min -DDEATHS=2 -DMIN=2 -DCOMMIT=1 -DNOPS=3
sampled four -DDEATHS=2 -DFIRST=15 -DFALSE_ALARMS=1
if [ "${MODEL_FULL:-0}" = 1 ]; then
    holds four-all -DDEATHS=2 -DFIRST=15
    holds slices-restart -DDEATHS=2 -DRESTARTS=1
    holds slices-alarm -DDEATHS=2 -DFALSE_ALARMS=1 -DK1=BEHIND
    holds view -DDEATHS=1 -DFALSE_ALARMS=1 -DCOMMIT=0 -DK0=WHOLE -DNOPS=1 -DVIEW
    holds gpu -DDEATHS=2 -DGPU=2 -DNOPS=0
    holds gpu-three -DDEATHS=1 -DGPU=3 -DWINDOW=3 -DNOPS=0 -DGPU_HOSTS
    holds gpu-join-all -DDEATHS=1 -DGPU=1 -DNOPS=1 -DCOMMIT=0 -DK0=WHOLE
    holds leave-join -DDEATHS=1 -DLEAVE=1 -DCOMMIT=0 -DK0=WHOLE
    holds join-ops -DDEATHS=1 -DCOMMIT=1 -DNOPS=3
fi

# ---- planted bugs ------------------------------------------------------------------------------------
caught EPOCH -DDEATHS=2
caught REUSE -DDEATHS=0 -DK0=WHOLE
caught NOFENCE -DDEATHS=2
caught LOCALGUESS -DDEATHS=2
caught NOBARRIER -DDEATHS=2 -DK0=BEHIND
# Bugs that the model has found in the plan.
caught HELLO -DDEATHS=2 -DFIRST=15
caught STALE -DDEATHS=2
caught REREAD -DDEATHS=2 -DFALSE_ALARMS=1
caught TERM -DDEATHS=2 -DRESTARTS=1
caught MIN -DDEATHS=2 -DMIN=2 -DCOMMIT=1 -DNOPS=3
caught HANGUP -DDEATHS=1 -DCOMMIT=1 -DNOPS=3
caught RETURN -DDEATHS=2
caught NOWORD -DDEATHS=2
caught PASSED -DDEATHS=2 -DK0=BEHIND
caught ENTER -DDEATHS=1 -DCOMMIT=0 -DK0=WHOLE
caught VIEW -DDEATHS=1 -DFALSE_ALARMS=1 -DCOMMIT=0 -DK0=WHOLE -DNOPS=1
# Batches on GPUs.
caught GLARGEST -DDEATHS=1 -DGPU=2 -DNOPS=0
caught GEVENTS -DDEATHS=1 -DGPU=2 -DNOPS=0
caught GLOWER -DDEATHS=2 -DGPU=2 -DNOPS=0
caught GTOLD -DDEATHS=1 -DGPU=2 -DNOPS=0
caught GKEPT -DDEATHS=1 -DGPU=2 -DNOPS=0
caught GABORT -DDEATHS=2 -DGPU=2 -DNOPS=0 -DGPU_HOSTS
caught GWORD -DDEATHS=0 -DGPU=2 -DNOPS=0 -DLEAVE=2

[ $failed -eq 0 ] || echo "model: FAILED"
exit $failed
