#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD TEST... [beside TEST...]...: runs tests one after the other and says how each ended. Called
# by make. What follows "beside" is a lane that runs at the same time as those before it. The first lane
# is for what mostly waits, the others for what computes: they are niced.
#
# A TEST is a program under BUILD, a script (*.sh, *.py), or LABEL=COMMAND. Each has a time-out (300 s;
# a line "timeout: SECONDS" in the head of its source asks for more), after which everything it
# started is killed. Exit code 77 means skipped. A test that leaves a process behind has failed, and
# so has one in whose log a sanitizer reports something, whatever the exit code.
# Lines "SKIP: id: need: reason" are collected; with HVD_TEST_STRICT=1 a skip that tests/SKIPS does
# not allow is a failure. Logs stay in BUILD/log. The last line counts.
set -u
export LC_ALL=C
export HVD_DOCTOR=off # what a test expects is not a matter of this machine's health
BUILD=$1
shift
ROOT=$(cd "$(dirname "$0")/.." && pwd)
LOGS=$BUILD/log
STRICT=${HVD_TEST_STRICT:-0}
PY=${PY:-/usr/bin/python3}
MARK=HVD_TEST_MARK
# A sanitizer's report about any process of the test, also about one whose exit code nobody looks at.
REPORT='WARNING: ThreadSanitizer|ERROR: [A-Z][a-z]*Sanitizer|Sanitizer:DEADLYSIGNAL|[0-9]: runtime error: '
# Lines that say what went wrong, in the words of cmocka, compilers, Python, make and our own tests.
# WENT_WELL: those that only sound like it.
WENT_WRONG='FAILED|FAIL:|[Ee]rror|ERROR|^\[ +LINE|[Aa]ssert|Sanitizer|Traceback|no end in|exit code [1-9]|signal [1-9]|left behind|timed out|^make.*\*\*\*'
WENT_WELL='^\[ +(RUN|OK) |^ok |^SKIP: '
mkdir -p "$LOGS"
# How each test ended, a line each: verdict, log, label and why. The lanes write there.
RESULTS=$LOGS/results
: >"$RESULTS"
: >"$LOGS/skips"

# The source that a test was made of.
source_of() {
    case $1 in
    *.sh | *.py) echo "$1" ;;
    */tests/*) echo "$ROOT/tests/${1##*/tests/}.c" ;;
    esac
}

label_of() {
    local name=${1%.sh}
    case $1 in
    "$BUILD"/address/tests/*) echo "asan/${name#"$BUILD"/address/tests/}" ;;
    "$BUILD"/thread/tests/*) echo "tsan/${name#"$BUILD"/thread/tests/}" ;;
    "$BUILD"/tests/*) echo "${name#"$BUILD"/tests/}" ;;
    *) echo "${name#tests/}" ;;
    esac
}

timeout_of() {
    local src asked=
    src=$(source_of "$1")
    [ -n "$src" ] && [ -r "$src" ] &&
        asked=$(head -n 40 "$src" | sed -n 's/^[#* ]*timeout: *\([0-9][0-9]*\).*/\1/p' | head -n 1)
    [ -z "$asked" ] && asked=${HVD_TEST_TIMEOUT:-300}
    # The sanitizers slow everything down.
    case $2 in
    asan/* | tsan/*) asked=$((asked * 3)) ;;
    esac
    echo "$asked"
}

# Processes that carry this test's mark in their environment. Not zombies: theirs is empty.
left_behind() {
    grep -lzxs "$MARK=$1" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,'
}

# Kills them; says who they were.
reap() {
    local mark=$1 patience=$2 pids pid
    while pids=$(left_behind "$mark") && [ -n "$pids" ] && [ "$patience" -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    for pid in $pids; do
        echo "left behind: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        kill -KILL "$pid" 2>/dev/null
    done
    [ -z "$pids" ]
}

# seconds since $1 (EPOCHREALTIME), one decimal
since() {
    awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}

run_one() {
    local test=$1 label command log limit start mark rc=0 verdict=ok why='' seconds
    case $test in
    *=*) label=${test%%=*} command=(bash -c "${test#*=}") ;;
    *.py) label=$(label_of "$test") command=("$PY" "$test") ;;
    *) label=$(label_of "$test") command=("$test") ;;
    esac
    log=$LOGS/${label//\//-}.log
    limit=$(timeout_of "$test" "$label")
    case $test in
    *=*) limit=${HVD_STEP_TIMEOUT:-1500} ;;
    esac
    local more=()
    case $label in
    asan/* | tsan/*) more=(HVD_TEST_SANITIZED=1) ;; # such a program keeps memory that it has freed
    esac
    mark=$$.$RANDOM.${label//[^a-z0-9]/_}
    start=$EPOCHREALTIME
    env "$MARK=$mark" BUILD="$BUILD" PY="$PY" "${more[@]}" timeout --kill-after=60 "$limit" "${command[@]}" \
        >"$log" 2>&1 </dev/null || rc=$?
    seconds=$(since "$start")
    case $rc in
    0) ;;
    77) verdict=skip ;;
    124 | 137) verdict=FAIL why=" (timed out after $limit s, or killed)" ;;
    *) verdict=FAIL why=" (exit code $rc)" ;;
    esac
    if ! reap "$mark" 100 >>"$log"; then
        [ $verdict = FAIL ] || why=" (left processes behind)"
        verdict=FAIL
    fi
    if [ $verdict != FAIL ] && grep -aqE "$REPORT" "$log"; then
        verdict=FAIL why=" (a sanitizer reports something)"
    fi
    [ $verdict = skip ] && ! grep -aq '^SKIP: ' "$log" &&
        echo "SKIP: $label: unknown: it does not say why" >>"$log"
    # One lane at a time says something.
    {
        flock 9
        grep -a '^SKIP: ' "$log" >>"$LOGS/skips"
        echo "$verdict $log $label$why" >>"$RESULTS"
        printf '%-4s  %-46s %6s s%s\n' "$verdict" "$label" "$seconds" "$why"
        [ "$verdict" != FAIL ] || show "$log"
    } 9>"$LOGS/lock"
}

# The lines of log $1 that say why a test failed, $2 of them.
reasons() {
    grep -anE "$WENT_WRONG" "$1" | grep -avE "^[0-9]+:($WENT_WELL)" | head -n "$2" |
        cut -c 1-300 | sed 's/^/    > /'
}

# What a failed test said: first why, then the end of its log.
show() {
    reasons "$1" 40
    tail -n "${HVD_TEST_TAIL:-120}" "$1" | sed 's/^/    | /'
    echo "    the whole of it: $1"
}

# tests/SKIPS: "id reason", the id may be a shell pattern.
allowed() {
    local id pattern rest
    id=${1#SKIP: }
    id=${id%%:*}
    while read -r pattern rest; do
        case $pattern in
        '' | '#'*) continue ;;
        esac
        # shellcheck disable=SC2053
        [[ $id == $pattern && -n $rest ]] && return 0
    done <"$ROOT/tests/SKIPS"
    return 1
}

lane() {
    local test
    for test in "$@"; do
        run_one "$test"
    done
}

# Each lane is a process of its own.
list=()
for word in "$@"; do
    if [ "$word" = beside ]; then
        lane "${list[@]}" &
        list=()
        renice -n 5 $$ >/dev/null 2>&1
    else
        list+=("$word")
    fi
done
lane "${list[@]}"
wait

passed=$(grep -c '^ok ' "$RESULTS") failed=0
skips=() failures=() failure_logs=()
mapfile -t skips <"$LOGS/skips"
while read -r verdict log why; do
    [ "$verdict" = FAIL ] || continue
    failed=$((failed + 1))
    failures+=("$why")
    failure_logs+=("$log")
done <"$RESULTS"

if [ ${#skips[@]} -gt 0 ]; then
    echo
    for line in "${skips[@]}"; do
        if [ "$STRICT" = 1 ] && ! allowed "$line"; then
            failed=$((failed + 1))
            failures+=("$line (tests/SKIPS does not allow it)")
            failure_logs+=(/dev/null)
            echo "$line  <- not allowed"
        else
            echo "$line"
        fi
    done
fi
if [ ${#failures[@]} -gt 0 ]; then
    echo
    for i in "${!failures[@]}"; do
        echo "failed: ${failures[i]}"
        reasons "${failure_logs[i]}" 8
    done
fi
echo "$passed passed, $failed failed, ${#skips[@]} skipped"
[ "$failed" -eq 0 ]
