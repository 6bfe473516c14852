#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvdrun -H over the real ssh: two hosts that are network namespaces, in the second one an sshd of the test with keys of
# the test. What ssh refuses is one line. Nothing is left on either host.
# timeout: 900
# takes: 20 s, waiting
# shellcheck disable=SC2317,SC2016,SC2154,SC2086  # functions that check calls; words for other shells; common.sh; $CTL is two words
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

for program in ssh ssh-keygen /usr/sbin/sshd; do
    command -v $program >/dev/null || skip_all openssh "no $program"
done
can_netns || skip_all netns "cannot make network namespaces (root and iproute2)"
make_hosts || exit 1

# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
A=${hosts[0]} B=${hosts[1]}
THERE=10.213.7.2
unset HVD_RSH_AGENT
# shellcheck source=tests/e2e/membership.sh
. "$(dirname "$0")/membership.sh"
# shellcheck source=tests/e2e/attach.sh
. "$(dirname "$0")/attach.sh"
prefix=(ip netns exec "$A")
export HVD_DOCTOR=off # findings about these hosts do not matter here
# With this heartbeat hvdrun does not treat an agent of the other host as lost when that agent gets no processor for half
# a second.
export HVD_HEARTBEAT_MS=1000

# sshd needs this folder, whatever its configuration says.
[ -d /run/sshd ] || { mkdir -m 755 /run/sshd && at_end+=("rmdir /run/sshd"); }
# A user whose password is locked can log in by PAM only.
pam=no
case $(getent shadow root) in
'root:!'*) pam=yes ;;
esac

mkdir "$TMP/far"
for name in host key stranger; do
    ssh-keygen -q -t ed25519 -N '' -C "hvd test" -f "$TMP/$name" || exit 1
done
cp "$TMP/key.pub" "$TMP/authorized_keys"
echo "[$THERE]:2022,[$THERE]:2023 $(cut -d' ' -f1,2 "$TMP/host.pub")" >"$TMP/known_hosts"
echo "Keep out, or come in." >"$TMP/banner"
cat >"$TMP/sshd_config" <<END
ListenAddress $THERE
HostKey $TMP/host
PidFile none
AuthorizedKeysFile $TMP/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM $pam
Banner $TMP/banner
END

within_b() { on "$B" ss -Htln "sport = :$1" | grep -q .; }

# start_sshd PORT [COMMAND...]: starts sshd on host B, through COMMAND if given
start_sshd() {
    local port=$1
    shift
    ip netns exec "$B" "$@" /usr/sbin/sshd -D -e -f "$TMP/sshd_config" -p "$port" 2>"$TMP/sshd.$port" &
    disown
    wait_until 30 within_b "$port" && return 0
    cat "$TMP/sshd.$port"
    exit 1
}
start_sshd 2022
# An sshd whose sessions see an empty folder in place of hvd-agent's.
start_sshd 2023 unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$TMP/far"

# ssh reads these settings and not the user's, which it would find even without $HOME.
mkdir "$TMP/bin"
cat >"$TMP/ssh_config" <<END
UserKnownHostsFile $TMP/known_hosts
GlobalKnownHostsFile /dev/null
IdentitiesOnly yes
IdentityAgent none
END
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$TMP/ssh_config" >"$TMP/bin/ssh"
chmod +x "$TMP/bin/ssh"
PATH=$TMP/bin:$PATH

# far OPTION... COMMAND...: from host A with the right key
far() {
    on "$A" "$RUN" -p 2022 -i "$TMP/key" "$@"
}

sleeper() {
    echo "exec -a $MARK sleep 60"
}

ranks() {
    code 0 far -np 4 -H "localhost:2,$THERE:2" $CTL >"$TMP/1" 2>"$TMP/2" &&
        [ "$(grep -c 'ok size 4 local 2' "$TMP/1")" -eq 4 ] && nothing_left
}

real_ranks() {
    code 0 far -np 4 -H "$THERE:2,localhost:2" "$SUM" 3 2
}

# sshd starts sessions with its own environment: the variables of ranks come from hvdrun.
places() {
    GIVEN=1 HIDDEN=1 HVD_SEEN=1 code 0 far -np 1 -H "$THERE" -x GIVEN --no-prefix \
        sh -c 'echo $GIVEN$HIDDEN$HVD_SEEN; pwd; ip -4 -o addr show veth0; echo ${SSH_CONNECTION:+by ssh}' >"$TMP/1" &&
        says '^11$' "$TMP/1" && says "^$ROOT$" "$TMP/1" && says "$THERE/" "$TMP/1" && says 'by ssh' "$TMP/1"
}

failure() {
    code 4 far -np 2 -H "localhost:1,$THERE:1" bash -c \
        "[ \$HVD_RANK = 1 ] && echo why >&2 && exit 4; $(sleeper)" 2>"$TMP/2" &&
        says "rank 1 on $THERE (pid [0-9]*) exited with code 4" "$TMP/2" && says 'hvdrun:   why' "$TMP/2" && nothing_left
}

interrupted() {
    ip netns exec "$A" "$RUN" -p 2022 -i "$TMP/key" -np 2 -H "localhost:1,$THERE:1" bash -c "$(sleeper)" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 2 && kill -TERM $pid
    wait $pid || rc=$?
    [ $rc -eq 143 ] && nothing_left
}

# hvdrun is killed, and with it ssh: the agent on B ends its ranks by itself.
killed_hvdrun() {
    ip netns exec "$A" "$RUN" -p 2022 -i "$TMP/key" -np 2 -H "localhost:1,$THERE:1" bash -c "$(sleeper)" 2>"$TMP/2" &
    local pid=$!
    until_marked 2 && kill -KILL $pid
    wait $pid
    nothing_left
}

# The connection is lost: its sshd is killed.
connection_lost() {
    ip netns exec "$A" "$RUN" -p 2022 -i "$TMP/key" -np 2 -H "localhost:1,$THERE:1" bash -c "$(sleeper)" 2>"$TMP/2" &
    local pid=$! rc=0
    until_marked 2 && ip netns pids "$B" | xargs ps -o pid=,args= -p | awk '/sshd: root/ { print $1 }' | xargs -r kill -KILL
    wait $pid || rc=$?
    [ $rc -eq 1 ] && says "on $THERE" "$TMP/2" && nothing_left
}

# one_line PATTERN OPTION... HOST: hvdrun fails at once and prints one line with PATTERN
one_line() {
    local pattern=$1
    shift
    code 1 on "$A" timeout 30 "$@" bash -c "$(sleeper)" 2>"$TMP/2" && says "$pattern" "$TMP/2" &&
        [ "$(wc -l <"$TMP/2")" -eq 1 ] && nothing_left && return 0
    cat "$TMP/2"
    return 1
}

unknown_host() {
    mv "$TMP/known_hosts" "$TMP/known"
    one_line "^hvdrun: host $THERE: ssh ended with code 255 before its agent joined: Host key verification failed" \
        "$RUN" -p 2022 -i "$TMP/key" -H "$THERE"
    local rc=$?
    mv "$TMP/known" "$TMP/known_hosts"
    return $rc
}

other_host_key() {
    sed -i.bak "s, ssh-ed25519 .*, $(cut -d' ' -f1,2 "$TMP/stranger.pub")," "$TMP/known_hosts"
    one_line "^hvdrun: host $THERE: ssh ended with code 255 before its agent joined: Host key verification failed" \
        "$RUN" -p 2022 -i "$TMP/key" -H "$THERE"
    local rc=$?
    mv "$TMP/known_hosts.bak" "$TMP/known_hosts"
    return $rc
}

refused_key() {
    one_line "^hvdrun: host $THERE: ssh ended with code 255 before its agent joined: .*Permission denied (publickey)" \
        "$RUN" -p 2022 -i "$TMP/stranger" -H "localhost:1,$THERE:1"
}

no_key() {
    code 2 on "$A" "$RUN" -p 2022 -i "$TMP/none" -H "$THERE" true 2>"$TMP/2" &&
        says "^hvdrun: -i: $TMP/none: No such file or directory" "$TMP/2" && [ "$(wc -l <"$TMP/2")" -eq 1 ]
}

nobody_listens() {
    one_line "^hvdrun: host $THERE: ssh ended with code 255 before its agent joined: .*Connection refused" \
        "$RUN" -p 2024 -i "$TMP/key" -H "$THERE"
}

no_such_host() {
    one_line "^hvdrun: host no-such-host.invalid: ssh ended with code 255 before its agent joined: .*resolve" \
        "$RUN" -p 2022 -i "$TMP/key" -H "localhost:1,no-such-host.invalid:1"
}

no_agent() {
    cp "$BUILD/hvdrun" "$BUILD/hvd-agent" "$TMP/far"
    one_line "^hvdrun: host $THERE: ssh ended with code 127 before its agent joined: there is no hvd-agent: not at $TMP/far/hvd-agent" \
        "$TMP/far/hvdrun" -p 2023 -i "$TMP/key" -H "$THERE"
}

# hvdrun is killed. ssh ends at its next write, agents and ranks stay. The next hvdrun reaches the hosts by ssh as the
# first one did.
taken_over() {
    begun 2 -np 2 --min-np 1 --max-np 4 -p 2022 -i "$TMP/key" -H "localhost:2,$THERE:2" $RANKS || return 1
    line 2 'hvdrun: the agent on .* joined' || return 1 # the ranks are all on this host, and do not wait for it
    lost
    sleep 1 # time for the ranks to train on, or to fail
    attached && line 1 'attached to job .*: 2 ranks on 2 host(s), epoch 1' || return 1
    together 2 timeout 30 "$RUN" scale "$NAME" 4 --wait 20 | grep 'in effect: epoch 2, 4 ranks' || return 1
    kill -KILL "$(agent_on "$B")"
    line 1 "hvdrun: epoch 3: [23] of 4 ranks after .* on $THERE.*: lost" && line 1 'hvdrun: epoch [45]: 4 of 4 ranks' && ends 0
}

check ranks ranks
if [ -x "$SUM" ]; then
    check real-ranks real_ranks
else
    skip_part real-ranks programs "no $SUM"
fi
check places places
check failure failure
check interrupted interrupted
check killed-hvdrun killed_hvdrun
check connection-lost connection_lost
check taken-over aside taken_over
check unknown-host unknown_host
check other-host-key other_host_key
check refused-key refused_key
check no-key no_key
check nobody-listens nobody_listens
check no-such-host no_such_host
check no-agent no_agent
exit $failed
