#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/deps.sh with a fake apt-get: what it prints while packages are fetched and installed, in a log and on a terminal,
# and that it fetches the list of packages when an install fails.
# shellcheck disable=SC2154,SC2317  # what common.sh sets; called by check
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

mkdir "$TMP/bin"
# Nothing is installed, and nothing is written outside of $TMP.
printf '#!/bin/sh\necho not-installed\n' >"$TMP/bin/dpkg-query"
printf '#!/bin/sh\necho 0\n' >"$TMP/bin/id"
for name in tee chmod systemctl; do printf '#!/bin/sh\n' >"$TMP/bin/$name"; done
printf '#!/bin/sh\ncase "$*" in *policy-rc.d) ;; *) exec /bin/rm "$@" ;; esac\n' >"$TMP/bin/rm"
cat >"$TMP/bin/apt-get" <<'END'
#!/bin/bash
case " $* " in
*" --assume-no "*)
    [ ! -e "$FAKE/updated" ] || printf 'Need to get 423 MB of archives.\nAfter this operation, 1983 MB of additional disk space will be used.\n'
    exit 1
    ;;
*" update "*) [ ! -e "$FAKE/broken" ] && touch "$FAKE/updated" ;;
*" install "*)
    echo "asked: $*" >>"$FAKE/asked"
    [ -e "$FAKE/updated" ] || { echo 'E: Unable to locate package'; exit 100; }
    for percent in 0.0 19.9 20.1 55 100; do echo "dlstatus:1:$percent:Retrieving file 1 of 2" >&3; done
    for percent in 0.0 50 100; do echo "pmstatus:gcc:$percent:Installing gcc" >&3; done
    ;;
esac
END
chmod +x "$TMP"/bin/*

deps=(env "FAKE=$TMP" "PATH=$TMP/bin:$PATH" tests/deps.sh build)
in_a_log() {
    local rc=0
    timeout 60 "${deps[@]}" >"$TMP/said" 2>&1 || rc=$?
    cat "$TMP/said"
    sed 1d "$TMP/said" | diff - <(printf 'deps: %s\n' 'fetching the list of packages (apt-get update)' \
        'with what they depend on: 423 MB to download, 1983 MB on disk' 'downloading: 0 % of 423 MB' \
        'downloading: 20 % of 423 MB' 'downloading: 55 % of 423 MB' 'downloading: 100 % of 423 MB' 'installing: 0 %' 'installing: 50 %' 'installing: 100 %' installed) &&
        head -n 1 "$TMP/said" | grep -q 'Debian packages are missing: ' && [ "$rc" -eq 0 ]
}
# One line that is overwritten with every percent.
on_a_terminal() {
    timeout 60 script -qec "${deps[*]}" /dev/null >"$TMP/said" </dev/null
    cat "$TMP/said"
    grep -q $'\r\033\\[Kdeps: downloading: 19 % of 423 MB\r' "$TMP/said" && grep -q 'installing: 100 %.$' "$TMP/said" &&
        grep -q '^deps: installed' "$TMP/said"
}
says_why() {
    rm -f "$TMP/updated" && touch "$TMP/broken"
    refused 'deps: apt-get could not install: ' "${deps[@]}"
}

check 'in a log' in_a_log
check 'on a terminal' on_a_terminal
check 'where it cannot' says_why
exit "$failed"
