#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh [GROUP...]: installs the Debian packages that are missing, with apt-get, as root or through
# sudo. Groups: build, demo, test; all of these without arguments. And arm64: compiler and emulator of the
# other architecture, for make test-arm64. Silent when nothing is missing; where it cannot install it says
# what is missing. Made for Debian 12; Debian 13 and Ubuntu have the same
# names (libclang-rt of their own clang); elsewhere install what the lists below stand for.
set -eu
export LC_ALL=C

build=(gcc clang make pkg-config git libcurl4-gnutls-dev libjansson-dev libhwloc-dev
    libmicrohttpd-dev libgnutls28-dev libyaml-dev libsodium-dev libpmix-dev)
demo=(python3-torch python3-sklearn python3-matplotlib)
test=(libcmocka-dev libopenmpi-dev openmpi-bin slurm-wlm munge clang-format clang-tidy
    libclang-rt-14-dev iproute2 iptables curl shellcheck openssh-client openssh-server procps python3-torch
    python3-sklearn python3-matplotlib python3-pip python3-venv python3-setuptools python3-wheel python3-yaml
    podman runc mmdebstrap spin openssl containerd containernetworking-plugins musl-tools)
arm64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user mmdebstrap)

# Where it is a package, and not a wrapper for something that no container has.
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

[ $# -gt 0 ] || set -- build demo test
missing=()
for group in "$@"; do
    case $group in
    build) list=("${build[@]}") ;;
    demo) list=("${demo[@]}") ;;
    test) list=("${test[@]}") ;;
    arm64) list=("${arm64[@]}") ;;
    *)
        echo "deps: unknown group $group: want build, demo, test or arm64" >&2
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

echo "deps: installing ${missing[*]}"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
made_policy=
at_end() {
    rm -f "$log"
    [ -z "$made_policy" ] || "${as_root[@]}" rm -f "$policy"
}
trap at_end EXIT
trap 'exit 1' INT TERM
# Some of these are servers (sshd, munged, slurmd), of which the tests start their own: none may start
# now, nor with the machine later.
if [ ! -e "$policy" ]; then
    made_policy=1
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1
}
if ! apt install --no-install-recommends "${missing[@]}"; then
    # The usual cause is a package list that is old or was never fetched.
    if ! apt update || ! apt install --no-install-recommends "${missing[@]}"; then
        tail -n 20 "$log" >&2
        echo "deps: apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
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
