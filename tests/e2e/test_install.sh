#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make install` and `make uninstall` under DESTDIR: a C program and a Python program run with the installed files, and
# uninstall leaves every folder as it was. test_clean.sh does the same without DESTDIR in a bare container.
# timeout: 600
# takes: 100 s, waiting
# shellcheck disable=SC2154,SC2317  # what common.sh sets; called by check
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
unset LD_LIBRARY_PATH PYTHONPATH HVD_LIBRARY MAKEFLAGS MAKELEVEL
export PYTHONDONTWRITEBYTECODE=1
PY=${PY:-/usr/bin/python3}
dest=$TMP/dest
# Folders as on a machine in use: one that install shares with others, and an empty one.
mkdir -p "$dest/opt/hvd/bin" "$dest/opt/hvd/lib/pkgconfig" && touch "$dest/opt/hvd/bin/other" || exit 1
(cd "$dest" && find . | sort) >"$TMP/before"

make_it() {
    timeout 500 make --no-print-directory BUILD="$BUILD" DESTDIR="$dest" PREFIX=/opt/hvd "$@"
}
installs() {
    make_it install && make_it install && # the second time over the first
        [ -x "$dest/opt/hvd/bin/hvdrun" ] && [ -e "$dest/opt/hvd/lib/libhvd.so" ] &&
        ! find "$dest" -xtype l | grep .
}
runs_c() {
    cat >"$TMP/app.c" <<'END'
#include <hvd.h>
int main(void) { return hvd_init() < 0 || hvd_size() != 2 || hvd_shutdown() < 0; }
END
    local flags
    read -ra flags < <(PKG_CONFIG_PATH=$dest/opt/hvd/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest \
        pkg-config --cflags --libs hvd) &&
        cc "$TMP/app.c" "${flags[@]}" -o "$TMP/app" &&
        LD_LIBRARY_PATH=$dest/opt/hvd/lib "$dest/opt/hvd/bin/hvdrun" -np 2 --doctor=off "$TMP/app"
}
# The package finds the library that was installed with it, without LD_LIBRARY_PATH.
runs_python() {
    cat >"$TMP/app.py" <<'END'
import os
import sys
import hvd._lib
hvd.init()
assert hvd.size() == 2
assert os.path.realpath(hvd._lib.lib.path).startswith(sys.argv[1]), hvd._lib.lib.path
END
    PYTHONPATH=$dest/opt/hvd/lib/python3/dist-packages "$dest/opt/hvd/bin/hvdrun" -np 2 --doctor=off \
        "$PY" "$TMP/app.py" "$dest/opt/hvd/lib/"
}
# Needs no torch: horovodrun starts two ranks, which import horovod from the folder where it was installed.
runs_horovodrun() {
    cat >"$TMP/names.py" <<'END'
import sys
import horovod.common.util
import hvd
hvd.init()
assert horovod.__file__.startswith(sys.argv[1]), horovod.__file__
assert hvd.size() == 2 and horovod.run is hvd.run
END
    PYTHONPATH=$dest/opt/hvd/lib/python3/dist-packages "$dest/opt/hvd/bin/horovodrun" -np 2 --doctor=off \
        "$PY" "$TMP/names.py" "$dest/opt/hvd/lib/"
}
uninstalls() {
    make_it uninstall && (cd "$dest" && find . | sort) | diff "$TMP/before" -
}
without_python() {
    make_it install PYTHONDIR= && ! find "$dest" -name '*.py' | grep . && make_it uninstall PYTHONDIR=
}

check 'install' installs
check 'a C program' runs_c
check 'a Python program' runs_python
check 'a program that imports horovod' runs_horovodrun
check 'uninstall leaves nothing' uninstalls
check 'install without Python' without_python
check 'uninstall leaves nothing then either' uninstalls
exit "$failed"
