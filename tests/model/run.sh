#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [NAME...]: checks the models of repair, of sets and of units (README.md): the invariants in several settings,
# and planted bugs that must be found. Prints one line for each run: states, depth, seconds. The names "sets" and
# "units" stand for all names that begin with them.
# timeout: 1100
# takes: 430 s
#
# MODEL_SECONDS=n   time of each run that only samples (6); 0: until it ends by itself
# MODEL_DEPTH=n     steps of one history (10000; the longest seen is below 250)
# MODEL_MB=n        memory of one run (1500)
# MODEL_SEED=n      order of the search (1)
# MODEL_BITS=n      a sample remembers states in 2^n bits (30)
# MODEL_FULL=1      also complete searches that take minutes and gigabytes
set -u
cd "$(dirname "$0")" || exit 1
SECONDS_EACH=${MODEL_SECONDS:-6} DEPTH=${MODEL_DEPTH:-10000} MB=${MODEL_MB:-1500} BITS=${MODEL_BITS:-30}
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

model_of() {
    case $1 in
    sets-*) echo sets.pml ;;
    units-*) echo units.pml ;;
    *) echo repair.pml ;;
    esac
}

# build NAME COMPILER-FLAGS SETTING...: builds $TMP/NAME/pan
build() {
    local dir=$TMP/$1 flags=$2 model
    model=$(model_of "$1")
    shift 2
    mkdir "$dir" && cp ./*.pml "$dir" && echo "$*" >"$dir/settings" || return
    (
        cd "$dir" || exit
        spin -a "$@" "$model" >spin.log 2>&1 || exit
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
    [ "$wanted" = '  ' ] || [[ $wanted == *" $1 "* ]] || [[ $1 == *-* && $wanted == *" ${1%%-*} "* ]]
}

wrong() {
    echo "FAILED $1: $2"
    grep -E '^pan|error' "$TMP/$1/out" | cut -c 1-300
    [ ! -f "$TMP/$1/$(model_of "$1").trail" ] || history "$1"
    failed=1
}

# setting NAME WHICH DEFAULT: the number that was given as -DWHICH=
setting() {
    local value
    value=$(sed -n "s/.*-D$2=\([0-9]*\).*/\1/p" "$TMP/$1/settings")
    echo "${value:-$3}"
}

# The name of a process of units.pml: those of the members, then those of each set's members.
who_of_units() {
    local members=$(($(setting "$1" N 3) + $(setting "$1" JOINERS 1))) at=$(($2 - 1))
    case $3 in
    rank) echo "rank $at" ;;
    member) echo "rank $((at % members)), set $((at / members - 1))" ;;
    *) echo "$3" ;;
    esac
}

# Prints the history that leads to an error: process and action, one line for each step.
history() {
    local n pid who at file
    if [ "$(model_of "$1")" = units.pml ]; then
        steps "$1" | while read -r n pid who at; do
            tell "$n" "$(who_of_units "$1" "$pid" "$who")" "$at" units_steps.pml
        done
        return
    fi
    steps "$1" | while read -r n pid who at; do
        file=membership.pml
        [ "$(model_of "$1")" = repair.pml ] || file=sets.pml
        [ "$who" != rank ] || file=rank.pml who="rank $((pid - 1))"
        [ "$who" != lane ] || file=gpu_lane.pml who="lane $((pid - 5))"
        [ "$who" != world ] || who="rank $((pid - 1))"
        [ "$who" != member ] || who="rank $(((pid - 5) % 4)), set $(((pid - 5) / 4))"
        tell "$n" "$who" "$at" "$file"
    done
}

# The steps of the history: number, process, its type, line.
steps() {
    (cd "$TMP/$1" && ./pan -r 2>/dev/null) |
        sed -n 's/^ *\([0-9]*\):.*proc *\([0-9]*\) (\([a-z]*\)).*D_STEP\([0-9]*\).*/\1 \2 \3 \4/p'
}

# tell NUMBER WHO LINE FILE
tell() {
    printf '    %3d %-13s %s\n' "$1" "$2" "$(sed -n "$3s,.*/\* *\(.*\) \*/.*,\1,p" "$4")"
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
    build "$name" '-O0 -DCOLLAPSE' "-DBUG_${name##*-}" "${@:2}" || return
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
holds gpu-hosts -DDEATHS=1 -DGPU=2 -DNOPS=0 -DGPU_HOSTS
holds gpu-leave -DDEATHS=1 -DGPU=2 -DNOPS=0 -DLEAVE=2
holds gpu-restart -DDEATHS=1 -DGPU=2 -DNOPS=0 -DRESTARTS=1
holds gpu-alarm -DDEATHS=1 -DGPU=2 -DNOPS=0 -DFALSE_ALARMS=1
sampled gpu-join -DDEATHS=1 -DGPU=2 -DNOPS=1 -DCOMMIT=0 -DK0=WHOLE
sampled gpu-both -DDEATHS=2 -DGPU=2 -DLEAVE=2 -DRESTARTS=1 -DFALSE_ALARMS=1
sampled gpu-hosts-two -DDEATHS=2 -DGPU=2 -DNOPS=0 -DGPU_HOSTS
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
    holds gpu-hosts-all -DDEATHS=2 -DGPU=2 -DNOPS=0 -DGPU_HOSTS
    holds gpu-three -DDEATHS=1 -DGPU=3 -DWINDOW=3 -DNOPS=0 -DGPU_HOSTS
    holds gpu-join-all -DDEATHS=1 -DGPU=1 -DNOPS=1 -DCOMMIT=0 -DK0=WHOLE
    holds leave-join -DDEATHS=1 -DLEAVE=1 -DCOMMIT=0 -DK0=WHOLE
    holds join-ops -DDEATHS=1 -DCOMMIT=1 -DNOPS=3
fi

# ---- sets: invariants -----------------------------------------------------------------------------
holds sets-form -DDEATHS=2 -DALARMS=1
holds sets-form-four -DDEATHS=2 -DFIRST=15 -DS0=15
holds sets-remove -DDEATHS=2 -DFIRST=15 -DS0=14 -DREMOVES=1
holds sets-fails -DDEATHS=2 -DALARMS=1 -DFAILS=1
holds sets-busy -DDEATHS=1 -DREMOVES=1 -DBUSY=1
holds sets-repair -DDEATHS=1 -DALARMS=1 -DZOMBIES=1 -DFORMS=0 -DNOPS=2
holds sets-two -DDEATHS=2 -DS=2 -DS0=3 -DS1=6 -DFORMS=0 -DNOPS=2
holds sets-two-four -DDEATHS=1 -DFIRST=15 -DS=2 -DS0=7 -DS1=14 -DFORMS=0
holds sets-ring -DDEATHS=1 -DS=3 -DS0=3 -DS1=6 -DS2=5 -DFORMS=0
holds sets-two-life -DDEATHS=1 -DS=2 -DS0=3 -DS1=6 -DFORMS=3 -DREMOVES=1
holds sets-added -DDEATHS=2 -DADDED=1 -DFORMS=0 -DREMOVES=1
holds sets-added-busy -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1 -DBUSY=1
if [ "${MODEL_FULL:-0}" = 1 ]; then
    holds sets-two-life-all -DDEATHS=1 -DS=2 -DS0=3 -DS1=6 -DFORMS=3 -DREMOVES=3
    holds sets-added-two -DDEATHS=1 -DADDED=3 -DFORMS=0 -DREMOVES=3 -DS=2 -DS0=3 -DS1=6
    holds sets-added-four -DDEATHS=1 -DALARMS=1 -DFIRST=15 -DADDED=1 -DS0=14 -DFORMS=0 -DREMOVES=1
    holds sets-remove-all -DDEATHS=2 -DALARMS=1 -DFIRST=15 -DS0=14 -DREMOVES=1
    holds sets-busy-all -DDEATHS=1 -DALARMS=1 -DREMOVES=1 -DBUSY=1 -DFORMS=0
    holds sets-repair-all -DDEATHS=2 -DALARMS=1 -DZOMBIES=1 -DFORMS=0 -DNOPS=2
    holds sets-two-four-all -DDEATHS=2 -DFIRST=15 -DS=2 -DS0=7 -DS1=14 -DFORMS=0
    holds sets-ring-all -DDEATHS=1 -DALARMS=1 -DS=3 -DS0=3 -DS1=6 -DS2=5 -DFORMS=0
    holds sets-two-all -DDEATHS=1 -DALARMS=1 -DZOMBIES=1 -DS=2 -DS0=7 -DS1=6 -DFORMS=0
fi

# ---- units: invariants ----------------------------------------------------------------------------
holds units-one -DDEATHS=1
holds units-beside -DDEATHS=1 -DBESIDE=2
sampled units-deaths -DDEATHS=2 -DBESIDE=2
sampled units-three -DDEATHS=2 -DN=4 -DS=3 -DP1=15
sampled units-joiners -DDEATHS=2 -DJOINERS=2 -DBESIDE=3
if [ "${MODEL_FULL:-0}" = 1 ]; then
    holds units-alarm -DDEATHS=1 -DALARMS=1 -DALARMED=IN_SHARE
    holds units-fixed -DDEATHS=1 -DBESIDE=3 -DP1=6
    holds units-shrink -DDEATHS=2 -DBESIDE=2 -DP0=1
    holds units-deaths-all -DDEATHS=2
    sampled units-large -DDEATHS=2 -DN=4 -DP0=7 -DP1=15 -DBESIDE=3
    holds units-three-all -DDEATHS=1 -DN=4 -DS=3 -DP1=15
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
# Sets.
caught sets-CLAIM -DDEATHS=1
caught sets-LATECLAIM -DDEATHS=1
caught sets-EARLYEND -DDEATHS=1
caught sets-GONE -DDEATHS=1 -DFORMS=0 -DREMOVES=1
caught sets-ORDER -DDEATHS=0 -DALARMS=1 -DS=3 -DS0=3 -DS1=6 -DS2=5 -DFORMS=0
caught sets-NOWORD -DDEATHS=2 -DFORMS=0
caught sets-STALE -DDEATHS=2 -DFORMS=0
caught sets-KEEP -DDEATHS=2 -DFORMS=0
caught sets-REREAD -DDEATHS=1 -DALARMS=1 -DZOMBIES=1 -DFORMS=0
# Bugs that the model has found in the code.
caught sets-FORWARD -DDEATHS=1 -DALARMS=1 -DFORMS=0 -DREMOVES=1
caught sets-ROUNDS -DDEATHS=1 -DFORMS=0 -DREMOVES=1
caught sets-SETWORKS -DDEATHS=1 -DFORMS=0 -DREMOVES=1 -DBUSY=1
caught sets-UNREPAIRED -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1
caught sets-TWICE -DDEATHS=1 -DFORMS=0 -DREMOVES=1
caught sets-EARLY -DDEATHS=1 -DFORMS=0 -DREMOVES=1
caught sets-UNTOLD -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1
caught sets-TOLD -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1
caught sets-NOREMEET -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1 -DBUSY=1
caught sets-NOWAIT -DDEATHS=1 -DADDED=1 -DFORMS=0 -DREMOVES=1
caught sets-RESET -DDEATHS=0 -DFAILS=1
# Units.
caught units-POLICY -DDEATHS=1
caught units-COUNTS -DDEATHS=1
caught units-ALONE -DDEATHS=1 -DN=4 -DS=3 -DP1=15
caught units-SILENT -DDEATHS=2 -DN=4 -DP0=7 -DP1=15
caught units-STAYS -DDEATHS=2
caught units-RUNS -DDEATHS=1 -DBESIDE=2
caught units-UNSETTLED -DDEATHS=1 -DBESIDE=2
caught units-DONE -DDEATHS=1
caught units-UNTOLD -DDEATHS=2
# Bugs that the model has found in the code.
caught units-AGAIN -DDEATHS=1 -DN=4 -DS=3 -DP1=15
caught units-CLOSED -DDEATHS=1 -DN=4 -DS=3 -DP1=15
caught units-LATE -DDEATHS=1
caught units-SHARES -DDEATHS=1 -DDIES=4 -DALARMS=1 -DALARMED=IN_SHARE
caught units-STALES -DDEATHS=2 -DDIES=12 -DBESIDE=2 -DP0=1
caught units-FAILSNEW -DDEATHS=2
caught units-TWICE -DDEATHS=2 -DDIES=9 -DP0=7
caught units-FAILSNOW -DDEATHS=1 -DDIES=2 -DALARMS=1 -DALARMED=IN_AGREE

[ $failed -eq 0 ] || echo "model: FAILED"
exit $failed
