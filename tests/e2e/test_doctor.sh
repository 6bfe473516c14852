#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd-doctor as a person uses it: every command and option, bad input, pipes that close, terminals, a full disk, secrets.
# Findings depend on the machine, so exact results come from captured machines.
# timeout: 900
# takes: 13 s, waiting
# shellcheck disable=SC2317,SC2016  # functions that check calls; words for other shells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
DOCTOR=$BUILD/hvd-doctor
TORN=$ROOT/tests/fixtures/machines/torn

doctor() {
    timeout 60 "$DOCTOR" "$@"
}

# code WANT COMMAND...: the command must end with this exit code
code() {
    local want=$1 rc=0
    shift
    "$@" >"$TMP/stdout" 2>"$TMP/stderr" || rc=$?
    cat "$TMP/stdout" "$TMP/stderr"
    [ "$rc" -eq "$want" ]
}

# bad WORDS ARGUMENT...: exit code 2, one line on standard error, nothing on standard output
bad() {
    local words=$1
    shift
    code 2 doctor "$@" && [ ! -s "$TMP/stdout" ] && [ "$(wc -l <"$TMP/stderr")" -eq 1 ] &&
        grep -qF -- "hvd-doctor: $words" "$TMP/stderr"
}

# On this machine: any findings, nothing on standard error, the verdict last.
here() {
    local rc=0
    doctor >"$TMP/1" 2>"$TMP/2" || rc=$?
    cat "$TMP/1" "$TMP/2"
    [ "$rc" -le 1 ] && [ ! -s "$TMP/2" ] && tail -n 1 "$TMP/1" | grep -qE '^(OK|WARN|FAIL)' &&
        ! grep -q $'\033' "$TMP/1"
}

quiet() {
    doctor --root "$TORN" -q >"$TMP/1" || [ $? -eq 1 ] || return 1
    [ "$(wc -l <"$TMP/1")" -eq 1 ]
}

verbose() {
    doctor --root "$TORN" --verbose >"$TMP/1"
    doctor list >"$TMP/2"
    # a line for each check of level 1, and why it was skipped
    [ "$(grep -cE '^(pass|info|warn|FAIL|skip|error) ' "$TMP/1")" -ge "$(doctor list --level 1 | wc -l)" ]
}

formats() {
    doctor --root "$TORN" --json >"$TMP/a.json"
    $PY -c 'import json, sys; j = json.load(open(sys.argv[1])); assert j["schema"] == "hvd-doctor/1" and j["checks"]' "$TMP/a.json" &&
        doctor --root "$TORN" --jsonl >"$TMP/a.jsonl"
    $PY - "$TMP/a.json" "$TMP/a.jsonl" <<'PYTHON' || return 1
import json, sys
whole = json.load(open(sys.argv[1]))
lines = [json.loads(line) for line in open(sys.argv[2])]
assert [l["type"] for l in lines] == ["check"] * len(whole["checks"]) + ["report"]
assert [l["id"] for l in lines[:-1]] == [c["id"] for c in whole["checks"]]
assert lines[-1]["verdict"] == whole["verdict"]
PYTHON
    doctor --root "$TORN" --junit >"$TMP/a.xml"
    $PY - "$TMP/a.json" "$TMP/a.xml" <<'PYTHON' || return 1
import json, sys, xml.etree.ElementTree as tree
whole = json.load(open(sys.argv[1]))
cases = tree.parse(sys.argv[2]).getroot().findall(".//testcase")
assert len(cases) == len(whole["checks"])
failed = [c.get("name") for c in cases if c.find("failure") is not None]
assert failed == [c["id"] for c in whole["checks"] if c["status"] == "fail"], failed
PYTHON
}

npd() {
    local rc=0
    doctor --root "$TORN" --npd >"$TMP/1" || rc=$?
    cat "$TMP/1"
    [ "$rc" -eq 1 ] && [ "$(wc -l <"$TMP/1")" -eq 1 ] && [ "$(wc -c <"$TMP/1")" -le 81 ]
}

# The exit code follows the verdict.
codes() {
    code 1 doctor --root "$TORN" --only nic-up &&
        code 0 doctor --root "$TORN" --only nic-up --silence nic-up="a test" --only sys-mounted &&
        grep -q 'silenced' "$TMP/stdout" &&
        code 0 doctor --root "$TORN" --only ib-port && code 1 doctor --root "$TORN" --only ib-port --strict &&
        grep -q '^FAIL (strict): 1 warning: ib-port' "$TMP/stdout" &&
        code 3 doctor --root "$TORN" --only stack-limit && grep -q '^UNKNOWN' "$TMP/stdout"
}

choosing() {
    [ "$(doctor list --only nic-up,HVD8002,shm-* --skip shm-free,shm-size | awk '{ print $2 }' | head -n 2 | tr '\n' ' ')" = "shm-fallocate shm-fstype-perm " ] &&
        [ "$(doctor list --only network | awk '$3 != "network"' | wc -l)" -eq 0 ] &&
        doctor list --json | $PY -c 'import json, sys; j = json.load(sys.stdin); assert len({c["id"] for c in j["checks"]}) == len(j["checks"]) == len({c["code"] for c in j["checks"]})'
}

# Every check has an explanation.
explained() {
    local id
    doctor list >"$TMP/list"
    awk '{ print $2 }' "$TMP/list" | xargs timeout 60 "$DOCTOR" explain >"$TMP/1" || return 1
    while read -r _ id _; do
        grep -q "^$id (HVD" "$TMP/1" || return 1
    done <"$TMP/list"
    [ "$(grep -c '^  why ' "$TMP/1")" -eq "$(wc -l <"$TMP/list")" ] && doctor explain HVD8001 | grep -q '^nic-up (HVD8001)' &&
        doctor explain --json nic-up | $PY -c 'import json, sys; j = json.load(sys.stdin); assert j["explained"][0]["id"] == "nic-up"'
}

diffs() {
    doctor --root "$TORN" --json >"$TMP/a.json"
    sed 's/"status": "fail"/"status": "pass"/' "$TMP/a.json" >"$TMP/b.json"
    code 0 doctor diff "$TMP/a.json" "$TMP/a.json" && grep -qx 'no difference' "$TMP/stdout" &&
        code 1 doctor diff "$TMP/a.json" "$TMP/b.json" && grep -q '^better    nic-up$' "$TMP/stdout" &&
        code 1 doctor diff "$TMP/b.json" - <"$TMP/a.json" && grep -q '^worse     nic-up$' "$TMP/stdout" &&
        code 1 doctor diff --json "$TMP/a.json" "$TMP/b.json" && grep -q '"hvd-doctor-diff/1"' "$TMP/stdout"
}

matches() {
    mkdir -p "$TMP/logs/rank.0" "$TMP/logs/rank.1"
    echo 'all is well' >"$TMP/logs/rank.0/stderr"
    printf 'RuntimeError: NCCL error\nnode1:99:99 [1] NCCL WARN Error: failed to extend /dev/shm/nccl-aB3dE9 to 9637892 bytes\n' >"$TMP/logs/rank.1/stderr"
    code 0 doctor match "$TMP/logs/rank.0/stderr" && code 1 doctor match "$TMP/logs" && grep -q 'rank.1/stderr' "$TMP/stdout" &&
        code 1 doctor match - <"$TMP/logs/rank.1/stderr" && code 1 doctor match -q "$TMP/logs" &&
        [ "$(wc -l <"$TMP/stdout")" -eq 1 ] && code 1 doctor match --json "$TMP/logs" &&
        $PY -c 'import json, sys; assert json.load(open(sys.argv[1]))["verdict"] == "found"' "$TMP/stdout"
}

# A recording of this machine gives the same findings as the machine, and so does a bundle. Other processes may change
# something between the two, hence at_best.
replay() {
    local rc=0
    rm -rf "$TMP/machine"
    doctor gather "$TMP/machine" >"$TMP/1" || return 1
    cat "$TMP/1"
    doctor --root "$TMP/machine" --json >"$TMP/replay.json" || rc=$?
    [ "$rc" -ne 2 ] && $PY - "$TMP/replay.json" "$TMP/machine/expected.json" "$TMP/1" <<'PYTHON'
import json, sys
replay, expected = (json.load(open(p)) for p in sys.argv[1:3])
found = {c["id"]: [c["status"], c["summary"]] for c in replay["checks"] if c["status"] != "skip"}
assert found == expected["checks"], (found, expected)
assert replay["verdict"] == expected["verdict"]
# The check of the machine a moment earlier has the same verdict; figures may have changed.
live = open(sys.argv[3]).read().splitlines()[-1]
assert live.split(":")[0].split()[0].lower() == replay["verdict"], live
PYTHON
}

# Each check has the same status for the recording as for the machine.
same_status() {
    rm -rf "$TMP/b" "$TMP/b.tar"
    doctor --json >"$TMP/live.json"
    doctor bundle -o "$TMP/b.tar" >"$TMP/1" && cat "$TMP/1" && mkdir "$TMP/b" && tar -C "$TMP/b" -xf "$TMP/b.tar" || return 1
    doctor --root "$TMP"/b/hvd-doctor-* --json >"$TMP/replay.json"
    $PY - "$TMP/live.json" "$TMP/replay.json" <<'PYTHON'
import json, sys
live, replay = ({c["id"]: c["status"] for c in json.load(open(p))["checks"]} for p in sys.argv[1:3])
assert live == replay, {k: (live[k], replay[k]) for k in live if live[k] != replay[k]}
PYTHON
}

secrets() {
    echo "epoch 1 token=s3cr3t-of-mine https://u:s3cr3t-of-mine@host/ plain s3cr3t-of-mine" >"$TMP/train.log"
    MY_API_KEY=s3cr3t-of-mine doctor bundle --log "$TMP/train.log" -o "$TMP/s.tar" >"$TMP/1" || return 1
    mkdir "$TMP/s" && tar -C "$TMP/s" -xf "$TMP/s.tar" && ! grep -r s3cr3t "$TMP/s" && grep -rq '<redacted>' "$TMP"/s/*/logs &&
        [ -s "$(echo "$TMP"/s/*/report.txt)" ] && [ -s "$(echo "$TMP"/s/*/match.txt)" ] && [ "$(stat -c %a "$TMP/s.tar")" = 600 ]
}

# A secret with quotes and brackets does not break any format.
secrets_formats() {
    local format
    for format in --verbose --json --jsonl --junit; do
        MY_API_KEY='a "s3cr3t <of> mine' doctor --only host "$format" --silence 'host=why a "s3cr3t <of> mine.' >"$TMP/format"
        ! grep s3cr3t "$TMP/format" && grep -q '[<;]redacted[>&]' "$TMP/format" || return 1
        $PY - "$format" "$TMP/format" <<'PYTHON' || return 1
import json, sys
from xml.etree import ElementTree
kind, text = sys.argv[1], open(sys.argv[2]).read()
if kind == "--junit":
    assert "(silenced: why <redacted>.)" in ElementTree.fromstring(text).find(".//system-out").text
elif kind == "--json":
    assert json.loads(text)["checks"][0]["silenced"] == "why <redacted>."
elif kind == "--jsonl":
    assert json.loads(text.splitlines()[0])["silenced"] == "why <redacted>."
PYTHON
    done
}

# The default name consists of host and time. An archive may go to standard output.
bundle_where() {
    (cd "$TMP" && mkdir here && cd here && doctor bundle --only host >/dev/null && ls && [ "$(ls)" = "$(ls hvd-doctor-*-*Z.tar)" ]) &&
        doctor bundle --only host -o - | tar -t | grep -q 'report.json$'
}

# A full disk: one line, no partial file.
full_disk() {
    bad '/dev/full: No space left on device' bundle --only host -o /dev/full && [ -c /dev/full ] || return 1
    code 2 sh -c "ulimit -f 8; '$DOCTOR' bundle -o '$TMP/limit.tar'" && grep -q 'limit.tar: File too large$' "$TMP/stderr" &&
        ! ls "$TMP"/limit.tar* 2>/dev/null || return 1
    mkdir "$TMP/small"
    if ! mount -t tmpfs -o size=16k tmpfs "$TMP/small" 2>/dev/null; then
        skip_part small-disk CAP_SYS_ADMIN "a tmpfs of 16 KiB cannot be mounted"
        return 0
    fi
    local rc=0
    bad "$TMP/small/b.tar: No space left on device" bundle -o "$TMP/small/b.tar" && [ -z "$(ls -A "$TMP/small")" ] &&
        bad "$TMP/small/m" gather "$TMP/small/m" && [ -z "$(ls -A "$TMP/small")" ] || rc=1
    umount "$TMP/small"
    return "$rc"
}

# A reader that closes the pipe is no error, a full disk is.
pipes() {
    local rc
    doctor --root "$TORN" --verbose 2>"$TMP/2" | head -n 1 >/dev/null
    rc=${PIPESTATUS[0]}
    [ "$rc" -le 1 ] && [ ! -s "$TMP/2" ] || return 1
    doctor --root "$TORN" --jsonl 2>"$TMP/2" | true
    [ ! -s "$TMP/2" ] && code 2 sh -c "'$DOCTOR' --root '$TORN' >/dev/full" &&
        grep -qx 'hvd-doctor: standard output: No space left on device' "$TMP/stderr" &&
        code 2 sh -c "'$DOCTOR' --root '$TORN' --jsonl >/dev/full" && code 2 sh -c "'$DOCTOR' list >&-" &&
        code 2 sh -c "'$DOCTOR' --help >/dev/full" && code 1 sh -c "'$DOCTOR' --root '$TORN' <&- 2>&-"
}

# on_tty COLUMNS COMMAND...: the command's output on a terminal of that width
on_tty() {
    local columns=$1
    shift
    $PY - "$columns" "$@" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execvp(command[0], command)
text = b""
while True:
    try:
        piece = os.read(fd, 65536)
    except OSError:
        break
    if not piece:
        break
    text += piece
os.waitpid(pid, 0)
sys.stdout.buffer.write(text)
PYTHON
}

colors() {
    export TERM=xterm
    unset NO_COLOR
    on_tty 60 "$DOCTOR" --root "$TORN" --only nic-up >"$TMP/1"
    cat "$TMP/1"
    grep -q $'\033\[1;31mFAIL\033\[0m' "$TMP/1" && awk '/^  why/ && length($0) > 62 { bad = 1 } END { exit bad }' "$TMP/1" || return 1
    NO_COLOR=1 on_tty 60 "$DOCTOR" --root "$TORN" --only nic-up | grep -q $'\033' && return 1
    TERM=dumb on_tty 60 "$DOCTOR" --root "$TORN" --only nic-up | grep -q $'\033' && return 1
    on_tty 60 "$DOCTOR" --root "$TORN" --only nic-up --color never | grep -q $'\033' && return 1
    doctor --root "$TORN" --only nic-up --color always | grep -q $'\033\[1;31m' &&
        ! doctor --root "$TORN" --only nic-up | grep -q $'\033'
}

end_serve() {
    [ -z "$pid" ] || kill "$pid"
}

serve_url() { sed -n 's|/metrics .*||p' "$TMP/serve"; }

has_looked() { [ -n "$(serve_url)" ] && curl -s "$(serve_url)/readyz" | grep -q '^FAIL'; }

serves() {
    local url
    "$DOCTOR" serve --root "$TORN" --only nic-up,ib-port --every 1 127.0.0.1:0 >"$TMP/serve" 2>"$TMP/2" &
    pid=$!
    at_end+=(end_serve)
    wait_until 10 has_looked
    url=$(serve_url)
    [ "$(curl -s -o "$TMP/ready" -w '%{http_code}' "$url/readyz")" = 503 ] && grep -q '^FAIL: 1 of 2 checks failed: nic-up' "$TMP/ready" &&
        [ "$(curl -s -w '%{http_code}' "$url/healthz")" = $'ok\n200' ] && curl -s "$url/metrics" >"$TMP/metrics" &&
        grep -qx 'hvd_doctor_check_status{id="nic-up",group="network"} 3' "$TMP/metrics" &&
        grep -q '^hvd_doctor_last_look_timestamp_seconds [0-9]' "$TMP/metrics" && bad 'listen on 127.0.0.1 port' serve "127.0.0.1:${url##*:}"
    local rc=$?
    kill "$pid"
    wait "$pid" || rc=1
    pid=''
    [ "$rc" -eq 0 ] && [ ! -s "$TMP/2" ]
}

help_and_version() {
    local c
    doctor --help >"$TMP/1" && grep -q '^usage: hvd-doctor' "$TMP/1" && doctor --version | grep -qx 'hvd-doctor [0-9.]*' || return 1
    awk 'length($0) > 100 { print; bad = 1 } END { exit bad }' "$TMP/1" || return 1
    for c in check list explain match diff bundle gather serve workers; do
        doctor "$c" --help | grep -q "^usage: hvd-doctor $c" || return 1
        grep -q "^  $c " "$TMP/1" || return 1
    done
}

# The program works from any folder and in any folder. Nothing is left behind.
elsewhere() {
    mkdir "$TMP/empty" && (cd "$TMP/empty" && env -i "$DOCTOR" --root "$TORN" -q >/dev/null || [ $? -eq 1 ]) &&
        (cd "$TMP/empty" && env -i "$DOCTOR" -q >/dev/null || [ $? -le 1 ]) && [ -z "$(ls -A "$TMP/empty")" ]
}

# An ordinary user: skips with true reasons, no crash.
unprivileged() {
    local rc=0
    if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null; then
        skip_part unprivileged root "the test is not root, or there is no setpriv"
        return 0
    fi
    chmod 755 "$TMP"
    install -m 755 "$DOCTOR" "$BUILD/hvd-probe" "$TMP/"
    setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set -all \
        env -i timeout 60 "$TMP/hvd-doctor" --verbose >"$TMP/1" 2>"$TMP/2" || rc=$?
    grep -v '^pass' "$TMP/1"
    cat "$TMP/2"
    [ "$rc" -le 1 ] && [ ! -s "$TMP/2" ] && ! grep -q '^error' "$TMP/1"
}

rules_file() {
    printf '# ours\nnccl | <99 | - | fail | old | newer | https://example.org\n' >"$TMP/rules"
    code 1 doctor --root "$TORN" --rules "$TMP/rules" -q || return 1
    printf 'nccl | <99 | - | fatal | old | newer | https://example.org\n' >"$TMP/rules"
    bad "$TMP/rules:1: severity: \"fatal\", want info, warn or fail" --rules "$TMP/rules" &&
        printf '\n\nnccl | 99 | - | fail | old | newer | x\n' >"$TMP/rules" && bad "$TMP/rules:3: range: \"99\"" --rules "$TMP/rules" &&
        printf 'nccl | <99\n' >"$TMP/rules" && bad "$TMP/rules:1: 2 fields, want 7" --rules "$TMP/rules"
}

completion() {
    bash -c ". diagnostics/hvd-doctor.bash; PATH=$BUILD:\$PATH"'
        COMP_WORDS=(hvd-doctor explain nic-u); COMP_CWORD=2; _hvd_doctor; [ "${COMPREPLY[*]}" = nic-up ] &&
        COMP_WORDS=(hvd-doctor --only nic-up,ib-p); COMP_CWORD=2; _hvd_doctor; [ "${COMPREPLY[*]}" = nic-up,ib-port ] &&
        COMP_WORDS=(hvd-doctor match --fa); COMP_CWORD=2; _hvd_doctor; [ "${COMPREPLY[*]}" = --failed ] &&
        COMP_WORDS=(hvd-doctor exp); COMP_CWORD=1; _hvd_doctor; [ "${COMPREPLY[*]}" = explain ]'
}

check here here
check quiet quiet
check verbose verbose
check formats formats
check npd npd
check codes codes
check choosing choosing
check explained explained
check diff diffs
check match matches
check replay at_best replay
check same-status at_best same_status
check secrets secrets
check secrets-formats secrets_formats
check bundle-where bundle_where
check full-disk full_disk
check pipes pipes
check colors colors
if command -v curl >/dev/null; then check serve serves; else skip_part serve curl "it is not installed"; fi
check help help_and_version
check elsewhere elsewhere
check unprivileged unprivileged
check rules rules_file
check completion completion

check bad-command bad 'no command "chekc"; did you mean "check"?' chekc
check bad-option bad 'unknown option --jsno; did you mean --json?' --jsno
check bad-id bad 'no check "nic-upp"; did you mean "nic-up"?' --only nic-upp
check bad-skip bad 'no check "nic-upp"; did you mean "nic-up"?' --skip nic-upp
check bad-silence bad 'no check "nic-upp"; did you mean "nic-up"?' --silence nic-upp=why
check bad-explain bad 'no check "nic-upp"; did you mean "nic-up"?' explain nic-upp
check bad-list bad 'no check "zzz"; `hvd-doctor list` has them all' list --only zzz
check bad-level bad '--level: "9": want an integer from 1 to 3' --level 9
check bad-only-level bad '--only: shm-bandwidth: needs --level 2' --only nic-up,shm-bandwidth
check bad-nothing bad '--skip leaves no check to run' --only host --skip host
check bad-ranks bad '--local-ranks 8: more than --ranks 4' --ranks 4 --local-ranks 8
check bad-root bad "--root: $TMP/none: No such file or directory" --root "$TMP/none"
check bad-root-host bad '--root: / is not a captured machine; `hvd-doctor gather DIR` makes one' --root /
check bad-name bad "$TMP/a b ?: No such file or directory" match "$TMP/a"$'\n'"b "$'\xff'
check bad-rules bad "$TMP/none: No such file or directory" --rules "$TMP/none"
check bad-prober bad "--prober: $TMP/none: No such file or directory" --prober "$TMP/none"
check bad-log bad "$TMP/none: No such file or directory" match "$TMP/none"
mkdir "$TMP/nothing"
check bad-folder bad "$TMP/nothing: no file in this folder" match "$TMP/nothing"
check bad-bundle-log bad "--log: $TMP/none: No such file or directory" bundle --log "$TMP/none" -o "$TMP/never.tar"
check bad-bundle-left test ! -e "$TMP/never.tar"
check bad-bundle-dir bad "$TMP/none/b.tar: No such file or directory" bundle --only host -o "$TMP/none/b.tar"
check bad-gather bad "$TMP/machine: Directory not empty" gather --only host "$TMP/machine"
echo '{"schema": "hvd-doctor/1", ' >"$TMP/broken.json"
check bad-diff-json bad "$TMP/broken.json: line 2 column 0: string or '}' expected" diff "$TMP/broken.json" "$TMP/broken.json"
check bad-diff-schema bad "$TMP/machine/expected.json: schema: want \"hvd-doctor/1\" (hvd-doctor --json)" diff "$TMP/machine/expected.json" "$TMP/a.json"
check bad-diff-one bad 'diff needs two reports, A.json B.json' diff "$TMP/a.json"
check bad-port bad '"99999": want [ADDRESS:]PORT' serve 99999
mkdir -p "$TMP/odd/root" && echo --frob >"$TMP/odd/options"
check bad-options bad "$TMP/odd/options: unknown option --frob" --root "$TMP/odd"
exit $failed
