#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun --doctor over three hosts, which are network namespaces: no fault, a difference between hosts, a host that is cut
# off, and a path that loses large packets. In a PID namespace of its own, because hvdrun refuses --doctor while ranks of
# other tests run.
# timeout: 900
# takes: 40 s, waiting
# shellcheck disable=SC2317,SC2016,SC2154  # functions that check calls; words for other shells; common.sh
if [ "${HVD_OWN_PIDS:-}" != 1 ] && unshare -fp --mount-proc true 2>/dev/null; then
    HVD_OWN_PIDS=1 exec unshare -fp --kill-child --mount-proc "$0" "$@"
fi
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

[ "${HVD_OWN_PIDS:-}" = 1 ] || skip_all pid-namespace "cannot make a PID namespace (root)"
can_netns || skip_all netns "cannot make network namespaces (root and iproute2)"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"

# Three hosts at a bridge in a namespace of its own; each has eth0 (10.213.8.x) and eth1 (10.213.9.x). IPv6 is off,
# because its addresses would appear late. On eth1 no packet is larger than the MTU, as on a wire.
make_three() {
    local mark=${TMP##*-} s h i
    s=hvd${mark}s # not $$, which is small here; the names are global
    ip netns add "$s" && hosts+=("$s") || return 1
    for i in 0 1; do
        ip -n "$s" link add "br$i" type bridge && ip -n "$s" link set "br$i" up || return 1
    done
    for i in 1 2 3; do
        h=hvd${mark}h$i
        ip netns add "$h" && hosts+=("$h") && ip -n "$h" link set lo up &&
            on "$h" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 &&
            ip link add eth0 netns "$h" type veth peer name "a$i" netns "$s" &&
            ip link add eth1 netns "$h" type veth peer name "b$i" netns "$s" &&
            ip -n "$s" link set "a$i" master br0 up && ip -n "$s" link set "b$i" master br1 up &&
            ip -n "$h" addr add "10.213.8.$i/24" dev eth0 && ip -n "$h" link set eth0 up &&
            ip -n "$h" addr add "10.213.9.$i/24" dev eth1 && ip -n "$h" link set eth1 gso_max_segs 1 up || return 1
    done
}
make_three || exit 1
S=${hosts[0]} H1=${hosts[1]} H2=${hosts[2]} H3=${hosts[3]}
export HVD_IFACE=eth0

# Reaches the hosts by name. One of them can get an extra variable.
cat >"$TMP/rsh" <<'END'
#!/bin/sh
host=$1
shift
[ "$host" = "$ODD_HOST" ] && export NCCL_P2P_DISABLE=1
exec ip netns exec "$host" "$@"
END
chmod +x "$TMP/rsh"
export HVD_RSH_AGENT=$TMP/rsh

doctor() { on "$H1" "$RUN" -H "localhost:2,$H2:1,$H3:4" --doctor "$@"; }

# All three hosts are this machine: findings about speed say nothing when it is busy.
only_speed() { ! grep '^WARN\|^FAIL ' "$TMP/1" | grep -v 'xw-straggler\|xw-pair-bandwidth'; }

well() {
    code 0 doctor >"$TMP/1" 2>"$TMP/2" && only_speed && says 'workers  ' "$TMP/1" &&
        says 'hvd-doctor: measuring pairs' "$TMP/2"
}

alone() { code 0 "$RUN" --doctor >"$TMP/1" && only_speed && says 'workers  ' "$TMP/1"; }

differs() {
    ODD_HOST=$H3 code 0 doctor >"$TMP/1" && says 'differ in NCCL_P2P_DISABLE' "$TMP/1" &&
        says '(worker 2)' "$TMP/1"
}

# An address that no host reaches, beside one that works.
cut_off() {
    ip -n "$H2" addr add 10.213.10.2/24 dev eth1
    code 0 doctor >"$TMP/1" && says 'reached by another of its addresses' "$TMP/1" && says 10.213.10.2 "$TMP/1" &&
        says 'has 2 addresses' "$TMP/1"
    local rc=$?
    ip -n "$H2" addr del 10.213.10.2/24 dev eth1
    return "$rc"
}

# Small packets pass. Large ones are lost, without an error.
black_hole() {
    ip -n "$S" link set b2 mtu 600
    code 1 doctor >"$TMP/1" && says 'small packets pass, large ones do not' "$TMP/1" &&
        says 10.213.9.2 "$TMP/1" && tail -n 1 "$TMP/1" | grep -q '^FAIL: '
    local rc=$?
    ip -n "$S" link set b2 mtu 1500
    return "$rc"
}

# Beside a running job the doctor does not disturb it.
beside() {
    "$RUN" -np 1 bash -c "exec -a $MARK sleep 60" >/dev/null 2>&1 &
    local job=$! rc=0
    until_marked 1 || rc=1
    refused 'measuring is refused while ranks run here.*hvdrun list' "$RUN" --doctor || rc=1
    [ "$(grep -c 'measuring is refused' "$TMP/refused")" -eq 1 ] || rc=1
    refused 'refused while ranks run here.*without --level' "$BUILD/hvd-doctor" --level 2 || rc=1
    code 0 "$BUILD/hvd-doctor" --level 1 --only nofile-low >/dev/null || rc=1
    kill "$job"
    wait "$job"
    return "$rc"
}

check "one machine" alone
check "three hosts that are well" well
check "a setting that differs" differs
check "an address that is not reached" cut_off
check "a path that swallows large packets" black_hole
check "refused beside a job" beside
check "nothing left" nothing_left
exit $failed
