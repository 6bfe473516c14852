#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# stubs.sh VERSION FOLDER: creates stub C libraries, for linking only. They have every function of this
# system's libc and libm, with the newest symbol version that glibc VERSION (2.28) already had. A
# program linked with them needs no newer glibc; a function that only a newer glibc has is missing, so
# that the link fails. This is sound because glibc keeps each version of a function forever, and because
# the loader searches by name and version in all needed libraries. So functions that were in libpthread
# or libdl before 2.34 are found there, provided that both are needed (link with --no-as-needed
# -lpthread -ldl).
set -eu
export LC_ALL=C
limit=$1 folder=$2
cc=${CC:-gcc}
sysroot=$($cc -print-sysroot)
sysroot=${sysroot%/}
mkdir -p "$folder"

# list LIBRARY: prints lines "name version object-or-function size"
list() {
    "$($cc -print-prog-name=objdump)" -T "$1" | awk -v limit="$limit" '
        function number(text, part) {
            split(text, part, ".")
            return (part[1] * 1000 + part[2]) * 1000 + part[3]
        }
        BEGIN { most = number(limit) }
        {
            split($0, half, "\t")
            if (half[2] == "" || half[1] ~ /\*(UND|ABS)\*|\.t(bss|data)/)
                next
            n = split(half[2], word, " ")
            version = word[2]
            gsub(/[()]/, "", version)
            if (n != 3 || version !~ /^GLIBC_[0-9.]+$/)
                next
            v = number(substr(version, 7))
            name = word[3]
            if (v > most || (name in best && best[name] >= v))
                next
            best[name] = v
            line[name] = name " " version " " (half[1] ~ /O \./ ? "object" : "function") " " word[1]
        }
        END { for (name in line) print line[name] }' | sort
}

# stub SONAME [versions]: builds a stub library from such a list on standard input; versions: with
# symbol versions
stub() {
    awk -v asm="$folder/$1.s" -v map="$folder/$1.map" '
        {
            kind = $3 == "object" ? ".data" : ".text"
            printf "%s\n.globl %s\n.type %s, @%s\n.size %s, 0x%s\n%s: .byte 0\n", kind, $1, $1, $3, $1, $4, $1 > asm
            symbols[$2] = symbols[$2] " " $1 ";"
        }
        END {
            print ".section .note.GNU-stack,\"\",@progbits" > asm
            for (version in symbols)
                print version " {" symbols[version] " };" > map
        }'
    $cc -nostdlib -shared -Wl,-soname,"$1" ${2:+-Wl,--version-script="$folder/$1.map"} \
        -o "$folder/$1" "$folder/$1.s"
}

list "$($cc -print-file-name=libc.so.6)" | stub libc.so.6 versions
list "$($cc -print-file-name=libm.so.6)" | stub libm.so.6 versions
stub libpthread.so.0 </dev/null
stub libdl.so.2 </dev/null
loader=$(readelf -l "$($cc -print-file-name=libc.so.6)" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
echo "GROUP($folder/libc.so.6 $($cc -print-file-name=libc_nonshared.a) AS_NEEDED($sysroot$loader))" >"$folder/libc.so"
ln -sf libm.so.6 "$folder/libm.so"
ln -sf libpthread.so.0 "$folder/libpthread.so"
ln -sf libdl.so.2 "$folder/libdl.so"
