#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# stage.sh bundle|operator BUILD FOLDER: creates the file tree of an image.
#
#   bundle     programs and library as linked by images/images.mk, the Python package, and the libraries
#              that the programs load, with this system's C library and loader
#   operator   hvd-operator and hvd-plane, and their libraries in the folders where they look for them
#
# Both get name, version and licence of each Debian package that a library comes from.
set -eu
export LC_ALL=C
what=$1 build=$2 folder=$3
own=$build/images/own old=$build/images/old
new=$folder.new
cc=${CC:-gcc} # a command, maybe with options
strip=$($cc -print-prog-name=strip)
multiarch=$($cc -print-multiarch)
# Where a cross compiler has the other architecture's libraries; empty for this machine's.
sysroot=$($cc -print-sysroot)
sysroot=${sysroot%/}

# closure FILE...: the libraries in the sysroot that the files need, directly or through other libraries. ldd
# cannot list them, because it runs the other architecture's loader.
closure() {
    local asked=("$@") known=' ' name dir
    while [ ${#asked[@]} -gt 0 ]; do
        for name in $(readelf -d "${asked[0]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            [[ $known != *" $name "* ]] || continue
            known+="$name "
            for dir in "$sysroot/usr/lib/$multiarch" "$sysroot/lib/$multiarch"; do
                [ -e "$dir/$name" ] || continue
                echo "$dir/$name"
                asked+=("$dir/$name")
                continue 2
            done
            echo "stage.sh: $name is not in $sysroot" >&2
            return 1
        done
        asked=("${asked[@]:1}")
    done
}

# libraries PROGRAM...: the libraries that the programs load, and the loader
libraries() {
    if [ -n "$sysroot" ]; then
        closure "$@" # and what libc loads by itself, see below
        find "$sysroot/lib/$multiarch" "$sysroot/usr/lib/$multiarch" -name libgcc_s.so.1
        return
    fi
    ldd "$@" | sed -n -e 's/.* => \(\/[^ ]*\) .*/\1/p' -e 's/^\t\(\/[^ ]*\) (0x.*/\1/p' | sort -u
    # libc loads libgcc_s at run time when a thread calls pthread_exit() or is cancelled.
    realpath "$($cc -print-file-name=libgcc_s.so.1)"
}

# copy_libraries FOLDER PROGRAM...: copies these libraries under the names by which programs need them
copy_libraries() {
    local to=$1 file
    shift
    mkdir -p "$to"
    libraries "$@" >"$new/files"
    while read -r file; do
        install -m 644 "$file" "$to/${file##*/}"
    done <"$new/files"
    chmod 755 "$to"/ld-linux*
}

# copy_sysroot_licences FOLDER: lists the packages in the sysroot, except those that are only for compiling,
# and copies their licences. The sysroot does not tell which file belongs to which package.
copy_sysroot_licences() {
    local to=$1 doc package
    mkdir "$to/licences"
    for doc in "$sysroot"/usr/share/doc/*; do
        package=${doc##*/}
        [[ -f $doc/copyright && $package != *-dev ]] || continue
        install -m 644 "$doc/copyright" "$to/licences/$package"
        zcat "$doc"/changelog.Debian*.gz 2>/dev/null | sed -n '1s/^\([^ ]*\) (\([^)]*\)).*/\1 \2/p'
    done | sort -u >"$to/packages"
}

# copy_licences FOLDER: lists the packages of the copied libraries, and copies their licences
copy_licences() {
    local to=$1 file package
    install -D -m 644 LICENSE "$to/LICENSE"
    if [ -n "$sysroot" ]; then
        copy_sysroot_licences "$to"
        rm -f "$new/files"
        return
    fi
    command -v dpkg-query >/dev/null || return 0
    while read -r file; do
        # On systems where /lib is a link to /usr/lib, packages may still list their files under /lib.
        dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null ||
            dpkg-query -S "$(realpath "$file")" 2>/dev/null || echo "not from a package: $file" >&2
    done <"$new/files" | sed -n 's/: .*//p' | sort -u >"$new/names"
    mkdir "$to/licences"
    while read -r package; do
        dpkg-query -W -f '${Package} ${Version}\n' "$package" >>"$to/packages"
        install -m 644 "/usr/share/doc/${package%%:*}/copyright" "$to/licences/${package%%:*}"
    done <"$new/names"
    rm -f "$new/names" "$new/files"
}

stage_bundle() {
    local program programs=()
    mkdir -p "$new/bin" "$new/lib" "$new/python"
    install -s --strip-program="$strip" -m 755 "$build/images/hvd-launch" "$old/hvd-probe" "$new/bin"
    for program in hvd-agent hvd-doctor hvdrun; do
        install -s --strip-program="$strip" -m 755 "$own/$program" "$new/bin/$program.real"
        ln -s hvd-launch "$new/bin/$program"
        programs+=("$build/$program")
    done
    install -s --strip-program="$strip" -m 755 "$old/libhvd.so" "$new/lib/libhvd.so.0"
    ln -s libhvd.so.0 "$new/lib/libhvd.so"
    [ ! -f "$build/hvd_kernels.fatbin" ] || install -m 644 "$build/hvd_kernels.fatbin" "$new/lib"
    cp -r core/python/hvd "$new/python/hvd"
    find "$new/python" -name __pycache__ -prune -exec rm -rf {} +
    ln -s ../../lib/libhvd.so.0 "$new/python/hvd/libhvd.so"
    copy_libraries "$new/private" "${programs[@]}"
    copy_licences "$new/share"
}

stage_operator() {
    local loader program
    for program in hvd-operator hvd-plane; do
        install -s --strip-program="$strip" -D -m 755 "$build/$program" "$new/usr/bin/$program"
    done
    # Libraries go to the loader's first default folder, the loader to the path that the program names.
    copy_libraries "$new/lib/$multiarch" "$build/hvd-operator" "$build/hvd-plane"
    loader=$(readelf -l "$build/hvd-operator" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
    mkdir -p "$new${loader%/*}"
    mv "$new/lib/$multiarch/${loader##*/}" "$new$loader"
    mkdir "$new/etc"
    echo 'hosts: files dns' >"$new/etc/nsswitch.conf"
    copy_licences "$new/usr/share/hvd"
}

rm -rf "$new"
mkdir -p "$new"
"stage_$what"
chmod -R go=rX "$new"
rm -rf "$folder"
mv "$new" "$folder"
