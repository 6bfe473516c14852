#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# hvd-doctor's network checks against a real kernel: network namespaces whose interfaces have the faults that are looked
# for: unequal MTUs, no carrier, one address family, a bridge, few ports.
# takes: 6 s, waiting
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
PY=${PY:-/usr/bin/python3}

can_netns || skip_all netns 'network namespaces cannot be made here'

# new_host: an empty namespace with loopback, ${hosts[-1]}
new_host() {
    local name=hvd$$n${#hosts[@]}
    ip netns add "$name" && hosts+=("$name") && ip -n "$name" link set lo up
}

# pair NAME MTU ADDRESS: an interface in the newest namespace; the other end of the pair is there too, and up
pair() {
    local host=${hosts[-1]}
    ip -n "$host" link add "$1" mtu "$2" type veth peer name "veth-$1" &&
        ip -n "$host" link set "$1" up addrgenmode none &&
        ip -n "$host" link set "veth-$1" up addrgenmode none && ip -n "$host" addr add "$3" dev "$1"
}

# says ID STATUS WORDS OPTION...: in the newest namespace this check has the status and the words
# shellcheck disable=SC2317  # called by check
says() {
    local id=$1 status=$2 words=$3
    shift 3
    on "${hosts[-1]}" timeout 60 "$BUILD/hvd-doctor" check --json --timeout 30 --only "$id" "$@" \
        >"$TMP/report.json"
    "$PY" - "$TMP/report.json" "$status" "$words" <<'EOT'
import json, sys
check, = json.load(open(sys.argv[1]))["checks"]
print("%(status)s %(summary)s" % check)
sys.exit(0 if check["status"] == sys.argv[2] and sys.argv[3] in check["summary"] else 1)
EOT
}

new_host
check 'loopback alone' says nic-up warn 'no interface but loopback'
check 'loopback, all ranks here' says nic-up info 'enough for 2 ranks' --ranks 2 --local-ranks 2
check 'loopback, ranks elsewhere' says nic-up fail '2 of 4 ranks' --ranks 4 --local-ranks 2

pair eth0 1500 10.213.8.1/24
check 'one interface' says nic-up pass 'eth0 10.213.8.1'
check 'one MTU' says nic-mtu-consistent pass 'eth0 1500'
check 'counters' says nic-errors pass 'no errors on 2 interfaces'
check 'IPv4' says ipv6-only pass 'IPv4 only'
check 'an interface that is asked for' says nic-up pass eth0 --network-interfaces 10.213.0.0/16
check 'one that is not there' says nic-up fail 'HVD_IFACE=eth7 names no interface' --network-interfaces eth7
check 'NCCL takes it' says nccl-ifname-virtual pass 'NCCL takes eth0' --profile gpu
export NCCL_SOCKET_IFNAME='=eth1'
check 'NCCL is told another' says nccl-ifname-match fail 'there are: eth0' --profile gpu
unset NCCL_SOCKET_IFNAME

pair eth1 9000 10.213.9.1/24
check 'two MTUs' says nic-mtu-consistent warn 'eth0 1500, eth1 9000'
ip -n "${hosts[-1]}" link set veth-eth1 down
check 'no carrier' says nic-up warn 'eth1 10.213.9.1: an address but no carrier'

ip -n "${hosts[-1]}" link add br-x type bridge
ip -n "${hosts[-1]}" link set br-x up
ip -n "${hosts[-1]}" addr add 10.213.10.1/24 dev br-x
check 'a bridge beside it' says nccl-ifname-virtual warn 'br-x is virtual' --profile gpu

check 'ports' says port-range pass ' ports: '
on "${hosts[-1]}" sh -c 'echo 50000 50099 >/proc/sys/net/ipv4/ip_local_port_range' 2>"$TMP/refused" &&
    check 'few ports' says port-range warn 'only 100 ephemeral ports'
[ -s "$TMP/refused" ] && skip_part ports sysctl 'ip_local_port_range cannot be set here'

new_host
if [ "$(cat /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null)" = 0 ]; then
    pair eth0 1500 fd00:213::1/64
    check 'IPv6' says ipv6-only info 'IPv6 only'
    check 'IPv6 address' says nic-up pass 'eth0 fd00:213::1'
    export NCCL_SOCKET_FAMILY=AF_INET
    check 'NCCL wants IPv4' says ipv6-only fail 'NCCL_SOCKET_FAMILY=AF_INET, but'
    unset NCCL_SOCKET_FAMILY
else
    skip_part ipv6 IPv6 'this machine has none'
fi
exit $failed
