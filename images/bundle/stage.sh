#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# stage.sh BUILD FOLDER: puts the bundle together: programs and library that images/bundle.mk has linked,
# the Python package, and what the programs load: this system's libraries, its C library and loader among
# them, with the name, version and licence of each package they are of.
set -eu
export LC_ALL=C
build=$1 folder=$2
own=$build/images/own old=$build/images/old
new=$folder.new

# libraries PROGRAM...: the files that they load, the loader among them
libraries() {
    ldd "$@" | sed -n -e 's/.* => \(\/[^ ]*\) .*/\1/p' -e 's/^\t\(\/[^ ]*\) (0x.*/\1/p' | sort -u
}

# copy_libraries FOLDER PROGRAM...: by the names under which they are asked for
copy_libraries() {
    local to=$1 file
    shift
    mkdir -p "$to"
    # A thread that ends early, or is cancelled, has libc load libgcc_s.
    libraries "$@" >"$new/share/files"
    realpath "$("${CC:-gcc}" -print-file-name=libgcc_s.so.1)" >>"$new/share/files"
    while read -r file; do
        install -m 644 "$file" "$to/${file##*/}"
    done <"$new/share/files"
    chmod 755 "$to"/ld-linux*
}

# What all of it is, and under which licences.
copy_licences() {
    local file package
    install -m 644 LICENSE "$new/share/LICENSE"
    command -v dpkg-query >/dev/null || return 0
    while read -r file; do
        # Where /lib is a link packages still name their files by it.
        dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null ||
            dpkg-query -S "$(realpath "$file")" 2>/dev/null || echo "? $file" >&2
    done <"$new/share/files" | sed -n 's/: .*//p' | sort -u >"$new/share/names"
    mkdir "$new/share/licences"
    while read -r package; do
        dpkg-query -W -f '${Package} ${Version}\n' "$package" >>"$new/share/packages"
        install -m 644 "/usr/share/doc/${package%%:*}/copyright" "$new/share/licences/${package%%:*}"
    done <"$new/share/names"
    rm "$new/share/names"
}

rm -rf "$new"
mkdir -p "$new/bin" "$new/lib" "$new/python" "$new/share"
install -s -m 755 "$build/images/hvd-launch" "$old/hvd-probe" "$new/bin"
programs=()
for program in hvd-agent hvd-doctor hvdrun; do
    install -s -m 755 "$own/$program" "$new/bin/$program.real"
    ln -s hvd-launch "$new/bin/$program"
    programs+=("$build/$program")
done
install -s -m 755 "$old/libhvd.so" "$new/lib/libhvd.so.0"
ln -s libhvd.so.0 "$new/lib/libhvd.so"
cp -r core/python/hvd "$new/python/hvd"
find "$new/python" -name __pycache__ -prune -exec rm -rf {} +
ln -s ../../lib/libhvd.so.0 "$new/python/hvd/libhvd.so"
copy_libraries "$new/private" "${programs[@]}"
copy_licences
rm "$new/share/files"
chmod -R go=rX "$new"
rm -rf "$folder"
mv "$new" "$folder"
