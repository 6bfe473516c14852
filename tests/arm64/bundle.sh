#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh BUILD: checks the bundle for aarch64: every file in it is for that machine, the libraries that its programs
# need are in it, and its programs start. Called by test_arm64.sh, if this machine can start such programs.
set -u
export LC_ALL=C
bundle=$1/bundle
failed=0

wrong() {
    echo "FAILED: $*"
    failed=1
}

# needs FILE: the libraries that it needs, a line each
needs() {
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

while read -r file; do
    [ "$(head -c 4 "$file" | od -An -tx1 | tr -d ' ')" = 7f454c46 ] || continue
    readelf -h "$file" | grep -q 'Machine: *AArch64' || wrong "$file is not for aarch64"
    case $file in
    */private/* | *.real) ;;
    *) continue ;;
    esac
    for library in $(needs "$file"); do
        [ -e "$bundle/private/$library" ] || wrong "$file wants $library, which is not in the bundle"
    done
done < <(find "$bundle" -type f)

# These use the image's C library: nothing newer than glibc 2.28, and nothing besides it.
for file in bin/hvd-probe lib/libhvd.so.0; do
    for library in $(needs "$bundle/$file"); do
        case $library in
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux-aarch64.so.1) ;;
        *) wrong "$file wants $library" ;;
        esac
    done
    newest=$(objdump -T "$bundle/$file" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    [ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || wrong "$file wants $newest"
done

# The programs' loader has its path in an image, /hvd, so here the loader is called explicitly.
loader=$bundle/private/ld-linux-aarch64.so.1
for program in hvd-agent hvd-doctor hvdrun; do
    asked=$(readelf -l "$bundle/bin/$program.real" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
    [ "$asked" = /hvd/private/ld-linux-aarch64.so.1 ] || wrong "$program asks for the loader $asked"
    said=$("$loader" --library-path "$bundle/private" "$bundle/bin/$program.real" --version 2>&1) ||
        wrong "$program --version: $said"
    echo "$said"
done
readelf -d "$bundle/bin/hvd-launch" | grep -q NEEDED && wrong 'hvd-launch is not static'
exit $failed
