# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # used by, and given by, who sources it
#
# hvdrun.sh: what the tests of hvdrun share; sourced after common.sh. hvdrun keeps its sockets in a
# directory of the test; what it starts is found again by the name $MARK.
RUN=$BUILD/hvdrun
CTL="${PY:-/usr/bin/python3} $ROOT/tests/e2e/ctl_rank.py"
MARK=hvd-e2e-$$x
export XDG_RUNTIME_DIR=$TMP/run
mkdir -m 700 "$TMP/run"

# code WANT COMMAND...: it exits with WANT
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

# says PATTERN FILE
says() {
    grep -q -- "$1" "$2" || { echo "no \"$1\" in:"; cat "$2"; return 1; }
}

marked() { pgrep -f "^$MARK" >/dev/null; }

# nothing_left: no process of ours, no directory of hvdrun's; a busy machine may take its time
nothing_left() {
    local i
    for i in $(seq 200); do
        marked || [ -n "$(ls "$XDG_RUNTIME_DIR")" ] || break
        sleep 0.1
    done
    if marked; then
        pgrep -af "^$MARK"
        return 1
    fi
    [ -z "$(ls "$XDG_RUNTIME_DIR")" ] || { ls "$XDG_RUNTIME_DIR"; return 1; }
}

# until_marked N: N of them run
until_marked() {
    local i
    for i in $(seq 300); do
        [ "$(pgrep -fc "^$MARK")" -ge "$1" ] && return 0
        sleep 0.1
    done
    echo "they did not start"
    return 1
}
