# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # used by, or set by, the script that sources it
#
# hvdrun.sh: helpers for the tests of hvdrun, sourced after common.sh. hvdrun keeps its sockets in a directory of the
# test. Processes that it starts are found by the name $MARK.
RUN=$BUILD/hvdrun
CTL="${PY:-/usr/bin/python3} $ROOT/tests/e2e/ctl_rank.py"
MARK=hvd-e2e-$$x
export XDG_RUNTIME_DIR=$TMP/run
mkdir -m 700 "$TMP/run"

# code WANT COMMAND...: the command must exit with WANT
code() {
    local want=$1 rc=0
    shift
    if [ "$(type -t "$1")" = function ]; then
        "$@" || rc=$?
    else
        timeout 60 "$@" || rc=$?
    fi
    [ "$rc" -eq "$want" ] || { echo "exit code $rc, not $want"; return 1; }
}

# says PATTERN FILE: FILE must have a line that matches; otherwise FILE is shown
says() {
    grep -q -- "$1" "$2" || { echo "no \"$1\" in:"; cat "$2"; return 1; }
}

marked() { pgrep -f "^$MARK" >/dev/null; }
unmarked() { ! marked; }

# nothing_left: no process named $MARK and no directory of hvdrun is left; a busy machine may take a while
nothing_left() {
    wait_until 20 nothing_now && return 0
    pgrep -af "^$MARK"
    ls "$XDG_RUNTIME_DIR"
    return 1
}

nothing_now() { unmarked && [ -z "$(ls "$XDG_RUNTIME_DIR")" ]; }

# until_marked N: waits until N processes named $MARK run
until_marked() {
    wait_until 30 marked_by "$1" || { echo "they did not start"; return 1; }
}

marked_by() { [ "$(pgrep -fc "^$MARK")" -ge "$1" ]; }
