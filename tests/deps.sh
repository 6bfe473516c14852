#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh [GROUP...]: installs the Debian packages that are missing, with apt-get, as root or through sudo. Groups: build;
# demo; check, what make check needs beside these two; test, what make test needs beside the others. Without arguments these
# four. And arm64: compiler and emulator of the other architecture, for make test-arm64. Prints nothing when no package is
# missing. Otherwise it prints how much apt-get downloads and how far it is; where it cannot install, it prints which packages
# are missing.
# Made for Debian 12. Debian 13 and Ubuntu have packages of the same names (but libclang-rt of their own clang).
# Elsewhere, install what the packages below contain.
set -eu
export LC_ALL=C

build=(gcc clang make pkg-config git libcurl4-gnutls-dev libjansson-dev libhwloc-dev
    libmicrohttpd-dev libgnutls28-dev libyaml-dev libsodium-dev libpmix-dev)
demo=(python3-torch python3-sklearn python3-matplotlib)
check=(libcmocka-dev libopenmpi-dev openmpi-bin iproute2 procps)
test=(slurm-wlm munge clang-format clang-tidy
    libclang-rt-14-dev iptables curl shellcheck openssh-client openssh-server
    python3-cloudpickle python3-pip python3-venv python3-setuptools python3-wheel python3-yaml podman runc mmdebstrap spin openssl containerd containernetworking-plugins musl-tools)
arm64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user mmdebstrap)

# Ubuntu's chromium package only installs a snap, which no container can run.
if grep -qs '^ID=debian' /etc/os-release; then
    test+=(chromium fonts-dejavu-core)
fi

installed() {
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

if ! command -v dpkg-query >/dev/null; then
    echo "deps: no dpkg here; hvd needs what these Debian packages hold: ${build[*]}" >&2
    exit 0
fi

# A compiler's runtime goes with the compiler's version.
clang_rt() {
    local v
    v=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo "libclang-rt-${v:-14}-dev"
}

[ $# -gt 0 ] || set -- build demo check test
missing=()
for group in "$@"; do
    case $group in
    build) list=("${build[@]}") ;;
    demo) list=("${demo[@]}") ;;
    check) list=("${check[@]}") ;;
    test) list=("${test[@]}") ;;
    arm64) list=("${arm64[@]}") ;;
    *)
        echo "deps: unknown group $group: want build, demo, check, test or arm64" >&2
        exit 2
        ;;
    esac
    for package in "${list[@]}"; do
        [ "$package" = libclang-rt-14-dev ] && ! installed "$package" && package=$(clang_rt)
        installed "$package" || missing+=("$package")
    done
done
[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root=(sudo)
    else
        echo "deps: missing, and neither root nor sudo to install them: ${missing[*]}" >&2
        # What is built and tested without them fails or is skipped with a reason of its own.
        exit 0
    fi
fi

echo "deps: ${#missing[@]} Debian packages are missing: ${missing[*]}"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
made_policy=
at_end() {
    rm -f "$log"
    [ -z "$made_policy" ] || "${as_root[@]}" rm -f "$policy"
}
trap at_end EXIT
trap 'exit 1' INT TERM
# Some packages bring servers (sshd, munged, slurmd). The tests start servers of their own, so these must not start, neither
# now nor when the machine boots.
if [ ! -e "$policy" ]; then
    made_policy=1
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
# progress: reads apt-get's status lines ("dlstatus:N:PERCENT:..." while it downloads, "pmstatus:PACKAGE:PERCENT:..."
# while dpkg installs) and prints how far it is. On a terminal one line is updated; a log gets a line each 20 %.
# $of is the size of the download, such as " of 423 MB", where it is known.
of=
progress() {
    local kind percent doing='' what='' last='' step=20 begin=deps: end=$'\n'
    [ ! -t 1 ] || step=1 begin=$'\r\033[Kdeps:' end=''
    while IFS=: read -r kind _ percent _; do
        percent=${percent%%.*}
        case $kind in
        dlstatus) doing=downloading what="%$of" ;;
        pmstatus) doing=installing what=% ;;
        *) continue ;;
        esac
        [ "$doing $((percent / step))" != "$last" ] || continue
        last="$doing $((percent / step))"
        printf '%s %s: %s %s%s' "$begin" "$doing" "$percent" "$what" "$end"
    done
    [ -n "$end" ] || [ -z "$last" ] || echo
}
# apt ARGUMENT...: sudo passes on only the first three descriptors, so the status takes the place of standard output.
apt() {
    # shellcheck disable=SC2016  # the inner shell's
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c \
        'log=$1; shift; exec apt-get -q -y -o APT::Status-Fd=3 "$@" 3>&1 >"$log" 2>&1' apt "$log" "$@" | progress
}
# amounts: "423 MB to download, 1983 MB on disk", of what apt-get would install
amounts() {
    "${as_root[@]}" apt-get -q --assume-no install --no-install-recommends "${missing[@]}" 2>/dev/null |
        sed -n -e 's/^Need to get \(.*\) of archives.*/\1 to download/p' \
            -e 's/^After this operation, \(.*\) of additional.*/\1 on disk/p' | paste -s -d , | sed 's/,/, /'
}
# install_missing: fails where the package list is old or was never fetched; then apt update is what helps.
install_missing() {
    local size
    size=$(amounts)
    if [ -n "$size" ]; then
        echo "deps: with what they depend on: $size"
        of=" of ${size%% to download*}"
    fi
    apt install --no-install-recommends "${missing[@]}"
}
set -o pipefail
if ! install_missing; then
    echo 'deps: fetching the list of packages (apt-get update)'
    if ! apt update || ! install_missing; then
        tail -n 20 "$log" >&2
        echo "deps: apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
echo 'deps: installed'
if command -v systemctl >/dev/null; then
    for package in "${missing[@]}"; do
        case $package in
        openssh-server) units=(ssh.service ssh.socket) ;;
        munge) units=(munge.service) ;;
        containerd) units=(containerd.service) ;;
        slurm-wlm) units=(slurmd.service slurmctld.service) ;;
        *) continue ;;
        esac
        for unit in "${units[@]}"; do
            "${as_root[@]}" systemctl --quiet disable "$unit" 2>/dev/null || true
        done
    done
fi
