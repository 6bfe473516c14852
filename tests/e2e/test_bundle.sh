#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bundle (make bundle) in images without hvd: root file systems of Debian 11, 12 (this machine's, if it is one) and
# 13, as an ordinary user; what it needs of an image's C library; its installation; and its messages in an image without
# glibc.
# timeout: 1800
# takes: 120 s
# needs: roots
# shellcheck disable=SC2154,SC2317,SC2016  # what common.sh sets; called by check; meant for the inner shell
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
unset LD_LIBRARY_PATH
BUNDLE=$BUILD/bundle
[ -d "$BUNDLE/share" ] || {
    echo "FAILED there is no $BUNDLE: make bundle"
    exit 1
}

# ---- what the bundle needs -------------------------------------------------------------------

# newest FILE: the newest version of glibc that it needs
newest() {
    objdump -T "$1" | sed -n 's/.*UND.*(\{0,1\}GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -n 1
}

old_enough() {
    local file version
    for file in lib/libhvd.so.0 bin/hvd-probe; do
        version=$(newest "$BUNDLE/$file")
        echo "$file: GLIBC_$version"
        [ -n "$version" ] && [ "$(printf '%s\n2.28\n' "$version" | sort -V | tail -n 1)" = 2.28 ] || return 1
    done
    # The ordinary build must need a newer one, otherwise this check proves nothing.
    [ "$(printf '%s\n2.28\n' "$(newest "$BUILD/libhvd.so")" | sort -V | tail -n 1)" != 2.28 ] ||
        [ "$(getconf GNU_LIBC_VERSION | sed 's/glibc 2[.]//')" -lt 33 ]
}

# Before 2.34 glibc ran a program's constructors only if the program was linked for it.
no_constructors() {
    readelf -d "$BUNDLE/bin/hvd-probe" | grep -q 'INIT_ARRAYSZ.* 8 (bytes)'
}

# Files that the image's loader loads need only libc. Files that our loader loads find all else beside them.
needs() {
    readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'
}
complete() {
    local file need
    for file in "$BUNDLE"/lib/libhvd.so.0 "$BUNDLE"/bin/hvd-probe; do
        needs "$file" | grep -vE '^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6|ld-linux.*)$' && return 1
    done
    for file in "$BUNDLE"/bin/*.real "$BUNDLE"/private/*; do
        while read -r need; do
            [ -e "$BUNDLE/private/$need" ] || {
                echo "$file needs $need"
                return 1
            }
        done < <(needs "$file")
    done
    for file in "$BUNDLE"/bin/*.real; do
        readelf -l "$file" | grep -q 'interpreter: /hvd/private/ld-linux' || return 1
    done
}

# ---- installing ------------------------------------------------------------------------------

installs() {
    mkdir "$TMP/to" && "$BUNDLE/bin/hvd-launch" --install "$TMP/to" || return 1
    # A second installation over the first: an init container may be started again.
    rm "$TMP/to/bin/hvd-agent" && chmod 600 "$TMP/to/lib/libhvd.so.0" || return 1
    "$BUNDLE/bin/hvd-launch" --install "$TMP/to" || return 1
    diff -r --no-dereference "$BUNDLE" "$TMP/to" && [ -x "$TMP/to/bin/hvd-agent.real" ] &&
        [ "$(stat -c %a "$TMP/to/lib/libhvd.so.0")" = 755 ]
}
no_room() {
    mkdir "$TMP/small"
    refused 'hvd-launch: writing .*: No space left on device' unshare --mount bash -c \
        'mount -t tmpfs -o size=2M small "$1" && exec "$2" --install "$1"' small "$TMP/small" \
        "$BUNDLE/bin/hvd-launch"
}
# Installed at another path: one line of ours, not an error of the loader.
elsewhere() {
    refused 'hvd-agent: the bundle must be at /hvd, but it is at' "$TMP/to/bin/hvd-agent" --version
}

check 'glibc 2.28 is enough' old_enough
check 'no constructors' no_constructors
check 'complete' complete
check 'installs' installs
check 'elsewhere' elsewhere
refuses_nonsense() {
    refused 'usage: hvd-launch' "$BUNDLE/bin/hvd-launch" --instal /x &&
        refused 'hvd-launch: opening /nowhere' "$BUNDLE/bin/hvd-launch" --install /nowhere
}
check 'arguments' refuses_nonsense

[ "$(id -u)" -eq 0 ] || {
    skip_part roots root 'chroot and mmdebstrap want to be root'
    exit "$failed"
}
unshare --mount --pid --fork true 2>/dev/null || {
    skip_part roots namespaces 'no mount and pid namespaces here'
    exit "$failed"
}
check 'no room' no_room

# ---- in other root file systems --------------------------------------------------------------

mkdir "$TMP/work" "$TMP/examples"
cp examples/*.py "$TMP/examples"

# in_root ROOT COMMAND...: runs the command in ROOT with the bundle at /hvd
in_root() {
    local root=$1
    shift
    timeout 300 unshare --mount --pid --fork --kill-child tests/e2e/bundle_enter.sh "$root" "$BUNDLE" \
        "$TMP/examples" "$TMP/work" "$@"
}

versions() {
    local program
    for program in hvd-agent hvdrun hvd-doctor; do
        in_root "$1" "/hvd/bin/$program" --version | grep -q "^$program [0-9]" || return 1
    done
}

# Any verdict except UNKNOWN.
doctor() {
    local rc=0
    in_root "$1" /hvd/bin/hvd-doctor check >"$TMP/said" 2>&1 || rc=$?
    cat "$TMP/said"
    [ "$rc" -le 1 ] && grep -q 'libhvd\|hvd' "$TMP/said"
}

# hvd-probe opens the image's libraries with the image's C library.
probe() {
    in_root "$1" /hvd/bin/hvd-probe hvd /hvd/lib/libhvd.so.0 | grep -q 'version [0-9]'
}

# The example trains on two ranks with the image's own Python. Debian 11's torch 1.7 is killed by a signal when a
# process that has called backward() exits, even without hvd: there the example exits without cleaning up.
cat >"$TMP/examples/then_exit.py" <<'END'
import os
import runpy
import sys

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
END
trains() {
    local script=(/examples/digits_torch.py)
    [[ $1 == */debian11 ]] && script=(/examples/then_exit.py "${script[@]}")
    BUNDLE_ENV='OMP_NUM_THREADS=1 HVD_COORDINATOR_LOST_SECONDS=60' in_root "$1" /hvd/bin/hvdrun -np 2 --doctor=off /usr/bin/python3 \
        "${script[@]}" --epochs 3 >"$TMP/said" 2>&1 || {
        cat "$TMP/said"
        return 1
    }
    grep -q 'epoch  3 ' "$TMP/said"
}

# Ranks must load our library and package, and not our C library. They see the image's settings for its loader, and our
# loader ignores them.
cat >"$TMP/examples/looks.py" <<'END'
import os
import hvd

hvd.init()
with open("/proc/self/maps", encoding="ascii") as f:
    text = f.read()
maps = [line.split()[-1] for line in text.splitlines() if "/hvd/" in line]
assert maps and all(name.startswith("/hvd/lib/libhvd.so") for name in maps), maps
assert os.environ.get("LD_LIBRARY_PATH") == os.environ.get("WANT_PATH"), os.environ
assert not [name for name in os.environ if name.startswith("HVD_SAVED")], os.environ
assert hvd.__file__.startswith("/hvd/python/"), hvd.__file__
assert hvd.size() == 2
assert ("/examples/preload.so" in text) == ("LD_PRELOAD" in os.environ)
END
leaks_nothing() {
    in_root "$1" /hvd/bin/hvdrun -np 2 --doctor=off /usr/bin/python3 /examples/looks.py &&
        in_root "$1" /usr/bin/env LD_LIBRARY_PATH=/data/lib WANT_PATH=/data/lib \
            /hvd/bin/hvdrun -np 2 --doctor=off /usr/bin/python3 /examples/looks.py
}

# A library that the image preloads into every program, and that our loader could not load.
cat >"$TMP/preload.c" <<'END'
extern int only_this_image_has_it(void);
__attribute__((constructor)) static void begin(void)
{
    if (only_this_image_has_it() != 7)
        __builtin_trap();
}
END
echo 'int only_this_image_has_it(void) { return 7; }' >"$TMP/image.c"
gcc -shared -fPIC -nostdlib -o "$TMP/examples/libimage.so" "$TMP/image.c" &&
    gcc -shared -fPIC -nostdlib -o "$TMP/examples/preload.so" "$TMP/preload.c" -L"$TMP/examples" -limage \
        -Wl,-rpath,/data/lib || exit 1
preloads() {
    in_root "$1" /usr/bin/env LD_PRELOAD=/examples/preload.so LD_LIBRARY_PATH=/examples WANT_PATH=/examples \
        /hvd/bin/hvdrun -np 2 --doctor=off /usr/bin/python3 /examples/looks.py >"$TMP/said" 2>&1
    local rc=$?
    cat "$TMP/said"
    [ "$rc" -eq 0 ] && ! grep -q preload "$TMP/said"
}

try_root() {
    local name=$1 root=$2
    in_root "$root" /usr/bin/python3 -c 'import sys, torch, platform; print(platform.libc_ver(), sys.version.split()[0],
        "torch", torch.__version__)'
    [ $? -ne 78 ] || {
        skip_part "$name" overlay 'no overlay of file systems here'
        return
    }
    check "$name: versions" versions "$root"
    check "$name: the doctor" doctor "$root"
    check "$name: the probe" probe "$root"
    check "$name: an example on two ranks" trains "$root"
    check "$name: nothing of ours in the ranks" leaks_nothing "$root"
    check "$name: a preloaded library of the image" preloads "$root"
}

for name in debian11 debian13; do
    if ! command -v mmdebstrap >/dev/null; then
        skip_part $name mmdebstrap 'it is not installed'
    elif ! root=$(tests/e2e/rootfs.sh $name 2>"$TMP/mmdebstrap"); then
        tail -n 20 "$TMP/mmdebstrap"
        skip_part $name network "mmdebstrap could not make $name"
    else
        try_root $name "$root"
    fi
done
if grep -qx 'VERSION_ID="12"' /etc/os-release && /usr/bin/python3 -c 'import torch, sklearn' 2>/dev/null; then
    try_root debian12 /
else
    skip_part debian12 debian12 'this machine is no Debian 12 with PyTorch'
fi

# ---- images that cannot work -------------------------------------------------------------------

# musl's root file system, with a program that runs there, to prove it.
musl_root() {
    mkdir -p "$TMP/musl/lib" "$TMP/musl/bin" && cp /lib/ld-musl-*.so.1 "$TMP/musl/lib" &&
        echo 'int main(void) { return 42; }' >"$TMP/main.c" && musl-gcc -o "$TMP/musl/bin/true42" "$TMP/main.c"
}
musl_runs() {
    in_root "$TMP/musl" /bin/true42
    [ $? -eq 42 ]
}
one_line() {
    local rc=0
    in_root "$1" /hvd/bin/hvd-agent --version >"$TMP/said" 2>&1 || rc=$?
    cat "$TMP/said"
    [ "$rc" -eq 2 ] && [ "$(wc -l <"$TMP/said")" -eq 1 ] && grep -q "$2" "$TMP/said"
}
if musl_root 2>"$TMP/musl.log"; then
    check 'musl: it is one' musl_runs
    check 'musl: refused' one_line "$TMP/musl" \
        'this image has no glibc (.* is missing, it has musl: /lib/ld-musl-.*): hvd needs .* glibc 2.28'
else
    tail -n 3 "$TMP/musl.log"
    skip_part musl musl-tools 'there is no musl-gcc'
fi

# A loader that prints what an old one prints. The kernel starts it in place of the program, and it has no C library.
cat >"$TMP/old.c" <<'END'
static const char text[] = "version `GLIBC_2.28' not found\n";
void _start(void)
{
    long done;
    __asm__ volatile("syscall" : "=a"(done) : "a"(1L), "D"(2L), "S"(text), "d"(sizeof(text) - 1) : "rcx", "r11", "memory");
    __asm__ volatile("syscall" : "=a"(done) : "a"(60L), "D"(1L) : "rcx", "r11", "memory");
    __builtin_trap();
}
END
old_root() {
    local loader
    loader=$(readelf -l "$BUNDLE/bin/hvd-probe" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
    mkdir -p "$TMP/old${loader%/*}" && gcc -O1 -nostdlib -static -o "$TMP/old$loader" "$TMP/old.c"
}
if [ "$(uname -m)" = x86_64 ]; then
    check 'an old glibc: its loader' old_root
    check 'an old glibc: refused' one_line "$TMP/old" 'hvd needs glibc 2.28 or later; .* reports: version .GLIBC_2.28. not found'
else
    skip_part old x86_64 'the stand-in for an old loader is for x86-64'
fi
exit "$failed"
