#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd-doctor while one system call after the other is refused, with EPERM and with ENOSYS, as containers' sandboxes do. It
# must end with a verdict, or with one line that says why there is none.
# timeout: 400
# takes: 40 s, waiting
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

DENY=$BUILD/tests/programs/deny
[ -x "$DENY" ] || { echo "no $DENY"; exit 1; }
"$DENY" uname EPERM /bin/true || skip_all seccomp "filters cannot be set here"

# one CALL ERRNO: prints a line if hvd-doctor did not end as it must. Exit code 127 is the loader's, which needs most
# system calls too.
one() {
    local out rc=0 tmp
    tmp=$(mktemp -d "$TMP/one-XXXXXX")
    # Without children, waiting or a clock the doctor may be ended by the time limit.
    timeout -k 5 60 "$DENY" "$1" "$2" "$BUILD/hvd-doctor" --timeout 3 -q >"$tmp/1" 2>"$tmp/2" </dev/null || rc=$?
    out=$(tail -n 1 "$tmp/1")
    case $rc in
    0 | 1 | 3) [[ $out =~ ^(OK|WARN|FAIL|UNKNOWN) ]] || echo "$1 $2: exit code $rc, \"$out\"" ;;
    2) [ "$(wc -l <"$tmp/2")" -eq 1 ] || { echo "$1 $2: exit code 2 and more than a line:"; cat "$tmp/2"; } ;;
    127) grep -q 'error while loading' "$tmp/2" || echo "$1 $2: exit code 127: $(cat "$tmp/2")" ;;
    *) echo "$1 $2: exit code $rc: $out $(head -c 300 "$tmp/2")" ;;
    esac
    rm -rf "$tmp"
}
export -f one
export DENY BUILD TMP

# all ERRNO: two system calls at a time
all() {
    "$DENY" --list | xargs -P 2 -I NAME bash -c "one NAME $1" >"$TMP/bad"
    cat "$TMP/bad"
    [ ! -s "$TMP/bad" ]
}

check "EPERM" all EPERM
check "ENOSYS" all ENOSYS
exit $failed
