#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The test runner: what tests/run.py counts as passed, failed and skipped, and what it shows of a failure. Each check runs
# it on small commands, with a build folder of its own.
# takes: 16 s, waiting
# shellcheck disable=SC2317  # checks are called by name
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

# run TEST...: runs tests/run.py, with its output in $TMP/said and its exit code in $ended
run() {
    env -u HVD_TEST_TAIL HVD_TEST_STRICT="${strict:-0}" HVD_STEP_TIMEOUT="${limit:-60}" \
        tests/run.py "$TMP/build" "$@" >"$TMP/said" 2>&1
}

# ends WANT LINE: run ended with 0 or 1, and the last line is LINE
ends() {
    cat "$TMP/said"
    [ "$1" -eq "$ended" ] && [ "$(tail -n 1 "$TMP/said")" = "$2" ]
}

says() {
    cat "$TMP/said"
    grep -qE -- "$1" "$TMP/said"
}

says_not() {
    ! says "$1"
}

ended=0
run 'good=echo fine' 'other=true' || ended=$?
check good ends 0 '2 passed, 0 failed, 0 skipped'

ended=0
run 'good=true' 'bad=echo "tests/x.c:7: error: Failure!"; seq 1 500; exit 3' || ended=$?
check bad ends 1 '1 passed, 1 failed, 0 skipped'
check bad-code says '^FAIL  bad .*exit code 3'
check bad-why says '^    > 1:tests/x.c:7: error: Failure!'
check bad-tail says '^    \| 381$'
check bad-tail-end says_not '^    \| 380$'
check bad-again says '^failed: bad \(exit code 3\)'

ended=0
run 'mild=echo "SKIP: mild: luck: none today"; exit 77' 'part=echo "SKIP: part: luck: half"' || ended=$?
check skipped ends 0 '1 passed, 0 failed, 2 skipped'
ended=0
run 'mute=exit 77' || ended=$?
check mute says '^SKIP: mute: unknown: '
ended=0
strict=1 run 'mute=exit 77' || ended=$?
check strict ends 1 '0 passed, 1 failed, 1 skipped'

# Reports of sanitizers, of a process whose exit code is lost. The names of the checks avoid these words, because this
# script's own log is searched for them too.
reports=('WARNING: ThreadSanitizer: data race (pid=7)'
    '==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1'
    '==7==ERROR: LeakSanitizer: detected memory leaks'
    'AddressSanitizer:DEADLYSIGNAL'
    'core/x.c:12:7: runtime error: signed integer overflow')
for i in "${!reports[@]}"; do
    ended=0
    run "child=echo '${reports[i]}' >&2" || ended=$?
    check "report-$i" ends 1 '0 passed, 1 failed, 0 skipped'
    check "report-$i-why" says '^FAIL  child .*a sanitizer reports something'
    ended=0
    run "child=echo '${reports[i]}' >&2; exit 77" || ended=$?
    check "report-$i-skipped" ends 1 '0 passed, 1 failed, 0 skipped'
done
ended=0
run "python=echo 'RuntimeError: all is well' >&2" || ended=$?
check no-report ends 0 '1 passed, 0 failed, 0 skipped'

# A test that needs a build starts when the build has passed, and does not run if the build fails.
ended=0
run "x/test=[ -e $TMP/built ] && [ \$(nice) -ge 5 ]" "x/build=sleep 0.5; touch $TMP/built" || ended=$?
check build ends 0 '2 passed, 0 failed, 0 skipped'
ended=0
run 'x/test=true' 'x/build=exit 3' 'y=true' || ended=$?
check no-build ends 1 '1 passed, 1 failed, 0 skipped'
check no-build-why says 'need x/build do not run: x/test$'

# Interrupted, it ends the tests that run.
tests/run.py "$TMP/build" "long=sleep 4712.$$" >"$TMP/said" 2>&1 &
runner=$!
wait_until 20 pgrep -f "^sleep 4712.$$" >/dev/null
kill -TERM "$runner"
ended=0
wait "$runner" || ended=$?
check interrupted [ "$ended" -eq 130 ]
check interrupted-gone bash -c "! pgrep -f '^sleep 4712.$$'"

ended=0
limit=1 run "slow=sleep 60" || ended=$?
check timeout says '^FAIL  slow .*timed out after 1 s'
ended=0
run "littering=setsid sleep 4711.$$ & exit 0" || ended=$?
check left-behind says '^FAIL  littering .*left processes behind'
check left-behind-named says "left behind: [0-9]+ sleep 4711.$$"
check left-behind-gone bash -c "! pgrep -f '[s]leep 4711.$$'"

exit "$failed"
