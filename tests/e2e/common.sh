# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # used by the scripts that source it
#
# common.sh: helpers for all launcher tests; sourced, never run. Network namespaces that stand for hosts, checks that
# print only when they fail, skips with a reason.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
ROOT=$PWD
BUILD=$(realpath "${BUILD:-build}")
ID=$(basename "$(dirname "$0")")/$(basename "$0" .sh)
SUM=$BUILD/tests/programs/sum
TMP=$(mktemp -d "${TMPDIR:-/tmp}/hvd-test-XXXXXX")
export LD_LIBRARY_PATH=$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
hosts=()

# skip_all NEED REASON: skips the whole test
skip_all() {
    echo "SKIP: $ID: $1: $2"
    exit 77
}

# skip_part PART NEED REASON: skips one check of the test
skip_part() {
    echo "SKIP: $ID/$1: $2: $3"
}

# check NAME COMMAND...: prints whether the command succeeded, and its output if it failed.
check() {
    local name=$1 rc=0
    shift
    "$@" >"$TMP/out" 2>&1 || rc=$?
    if [ "$rc" -eq 0 ]; then
        echo "ok $name"
    else
        echo "FAILED $name (exit code $rc)"
        tail -n 40 "$TMP/out"
        failed=1
    fi
}

# refused WORDS COMMAND...: the command must fail and print WORDS (a pattern of grep).
refused() {
    local words=$1 rc=0
    shift
    timeout 60 "$@" >"$TMP/refused" 2>&1 || rc=$?
    cat "$TMP/refused"
    [ $rc -ne 0 ] && [ $rc -ne 124 ] && grep -q -- "$words" "$TMP/refused"
}

# since_ms BEGIN: milliseconds since BEGIN (an EPOCHREALTIME)
since_ms() {
    echo $(((${EPOCHREALTIME/./} - ${1/./}) / 1000))
}

# at_best COMMAND...: one of three attempts must succeed. For the few checks that measure a time, which a busy machine
# may exceed now and then.
at_best() {
    local i
    for i in 1 2 3; do
        "$@" && return 0
    done
    return 1
}

# wait_until SECONDS COMMAND...: COMMAND must succeed within that time; it is tried ten times a second
wait_until() {
    local seconds=$1 end=$((SECONDS + $1 + 1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || { echo "waited $seconds s in vain for: $*" >&2 && return 1; }
        sleep 0.1
    done
}

not() { ! "$@"; }

# ended PID: the process has ended, and its parent has reaped it
ended() { ! kill -0 "$1" 2>/dev/null; }

# wait_all: waits for all background jobs of this shell, which must succeed
wait_all() {
    local rc=0 pid
    for pid in $(jobs -p); do
        wait "$pid" || rc=1
    done
    return "$rc"
}

# count_of N PATTERN FILE: at least N lines match
count_of() {
    [ "$(grep -c -- "$2" "$3")" -ge "$1" ]
}

listens() { # PORT
    ss -Htln "sport = :$1" | grep -q .
}

# Prints a free port below the ephemeral ones.
free_port() {
    local port
    while port=$((10000 + RANDOM % 20000)); do
        listens "$port" || break
    done
    echo "$port"
}

# Cleans up at the end, however the test ends.
at_end=()
cleanup() {
    local i host
    for ((i = ${#at_end[@]} - 1; i >= 0; i--)); do
        ${at_end[i]}
    done
    for host in "${hosts[@]}"; do
        ip netns pids "$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
        ip netns del "$host" 2>/dev/null
    done
    rm -rf "$TMP"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

can_netns() {
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null && ip netns add "hvdtry$$" 2>/dev/null &&
        ip netns del "hvdtry$$"
}

# make_hosts: two namespaces joined by a pair of veth: ${hosts[0]} is 10.213.7.1, ${hosts[1]} 10.213.7.2
make_hosts() {
    local a=hvd$$a b=hvd$$b
    ip netns add "$a" && hosts+=("$a") && ip netns add "$b" && hosts+=("$b") &&
        ip link add veth0 netns "$a" type veth peer name veth0 netns "$b" &&
        ip -n "$a" addr add 10.213.7.1/24 dev veth0 && ip -n "$b" addr add 10.213.7.2/24 dev veth0 &&
        ip -n "$a" link set veth0 up && ip -n "$b" link set veth0 up &&
        ip -n "$a" link set lo up && ip -n "$b" link set lo up
}

# agent_on HOST: the pid of the hvd-agent on that host. Its parent is its keeper, which is an hvd-agent too.
agent_on() {
    local pid parent
    for pid in $(ip netns pids "$1"); do
        parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
        [ "$(ps -o comm= -p "$pid")$(ps -o comm= -p "${parent:-0}")" = hvd-agenthvd-agent ] && echo "$pid"
    done
}

# on HOST COMMAND...: runs the command in the network namespace that stands for HOST
on() {
    local host=$1
    shift
    ip netns exec "$host" "$@"
}
