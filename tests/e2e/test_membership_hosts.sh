#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The membership of elastic jobs over two hosts, which are network namespaces: a host that is lost, a host that is
# drained, joiners on the host that has room.
# timeout: 200
# takes: 15 s, waiting
# shellcheck disable=SC2317,SC2086,SC2154  # functions that check calls; $RANKS is several words; common.sh
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
can_netns || skip_all netns "cannot make network namespaces (root and iproute2)"
command -v curl >/dev/null || skip_all curl "asks a job over its socket"
make_hosts || exit 1
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
# shellcheck source=tests/e2e/membership.sh
. "$(dirname "$0")/membership.sh"
A=${hosts[0]} B=${hosts[1]}
export HVD_RSH_AGENT="ip netns exec"
prefix=(ip netns exec "$A")
# With this heartbeat hvdrun does not treat an agent of the other host as lost when that agent gets no processor for two
# seconds. Checks of that case set their own value.
export HVD_HEARTBEAT_MS=1000

# The agent on host B is killed: its rank is lost, and the replacement waits for room. The host returns, and the
# replacement runs there.
host_lost() {
    begin -np 4 --min-np 1 -H "localhost:3,$B:2" $RANKS
    line 4 'epoch 1 rank . of 4: 0 1 2 3 (change 0)' || return 1
    kill -KILL "$(agent_on "$B")"
    line 3 "epoch 2 rank . of 3: 0 1 2 (change 0)" && line 1 'hvdrun: epoch 2: 3 of 4 ranks after .*: lost: ' &&
        line 1 "member 4 is started on $B" && line 4 'epoch 3 rank . of 4: 0 1 2 4\* (change 1)' && ends 0
}

drained() {
    begin -np 4 --min-np 1 --max-np 6 -H "localhost:2,$B:4" $RANKS
    line 4 'epoch 1 rank' || return 1
    [ "$(ask /v1/drain "{\"host\":\"$B\"}")" = '{"change":1,"np":2} 200' ] &&
        line 2 'epoch 2 rank . of 2: 0 1 (change 1)' && line 2 'asked to leave: ' &&
        ask /v1/scale '{"np":3}' | grep -q 'room for 2.* 400' && ends 0
}

# The agent of a host gets SIGTERM, as an evicted pod does: its ranks leave at a boundary, then the agent ends.
evicted() {
    begin -np 4 --min-np 1 -H "localhost:2,$B:2" $RANKS
    line 4 'epoch 1 rank' || return 1
    kill -TERM "$(agent_on "$B")"
    line 2 'epoch 2 rank . of 2: 0 1 (change 1)' && line 2 'asked to leave' && ends 0
}

# More ranks join on the host with more room, and get one another's cards.
grows() {
    begin -np 2 --min-np 1 --max-np 5 -H "localhost:2,$B:3" $RANKS
    line 2 'epoch 1 rank' || return 1
    [ "$(together 3 ask /v1/scale '{"np":5}')" = '{"change":1,"np":5} 200' ] &&
        line 5 'epoch 2 rank . of 5: 0 1 2\* 3\* 4\* (change 1)' &&
        line 3 "member [234] is started on $B" && kill -KILL "$(pid_of 3)" &&
        line 4 'epoch 3 rank . of 4: 0 1 2 4 (change 1)' && line 5 'epoch 4 rank . of 5: 0 1 2 4 5\* (change 2)' && ends 0
}

# Rank 0 cannot continue and joins again. The other host's ranks do not report it as lost in its new world, and learn of
# its death there.
begins_anew() {
    begin -np 4 --min-np 1 -H "localhost:2,$B:2" bash -c \
        "[ \$HVD_RANK = 0 ] && mkdir $TMP/again 2>/dev/null && set -- again; exec $RANKS \"\$@\""
    line 4 'epoch 1 rank . of 4: 0 1 2 3 (change 0)' && kill -KILL "$(pid_of 1)" || return 1
    line 3 'epoch 3 rank . of 3: 2 3 0\*' && line 4 'epoch 4 rank . of 4: 2 3 0 4\*' &&
        sleep 1 && # time for an epoch too many
        ! grep 'epoch 5' "$TMP/out" || return 1
    kill -KILL "$(pid_of 2)" && line 3 'epoch 5 rank . of 3: 2 3 4 ' && line 4 'epoch 6 rank . of 4: 2 3 4 5\* ' && ends 0
}

# Host B is cut off: no connection ends, and no message comes. The coordinator treats the host as lost because it is
# silent. When the network is back the host's agent learns that it is no longer part of the job.
host_silent() {
    local dev
    dev=$(ip -n "$B" -o link show type veth | sed 's/^[0-9]*: \([^@:]*\).*/\1/')
    HVD_HEARTBEAT_MS=100 begin -np 4 --min-np 1 -H "localhost:2,$B:2" $RANKS
    line 4 'epoch 1 rank . of 4' || return 1
    sleep 3 # the coordinator needs some gaps to know the usual one
    ip -n "$B" link set "$dev" down
    line 1 "the agent on $B has been silent for [0-4][.]" &&
        line 2 "epoch 2 rank . of 2: 0 1 (change 0)" && ip -n "$B" link set "$dev" up && ends 0
}

check "a host is lost" host_lost
check "a host falls silent" host_silent
check "a host is drained" drained
check "an agent gets SIGTERM" evicted
check "ranks come on another host" grows
check "a rank that begins anew" begins_anew
exit "$failed"
