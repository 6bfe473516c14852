#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# HVD_BACKEND=mpi with the MPI of this machine: every collective, 1 to 8 ranks, on one host and on
# several; a container that forbids process_vm_readv; a killed rank; another MPI in LD_LIBRARY_PATH, or to build hvd with;
# programs that end without hvd_shutdown; settings that contradict each other.
# timeout: 900
# takes: 18 s, waiting
# shellcheck disable=SC2317,SC2154  # functions that check calls; what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

command -v mpirun >/dev/null || skip_all openmpi-bin 'no mpirun here'
[ -e "$BUILD/libhvd_mpi.so" ] || skip_all libopenmpi-dev 'hvd was built without mpi.h'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$TMP
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
ALL=$BUILD/tests/programs/collectives
MIDWAY=$BUILD/tests/programs/midway
DENY=$BUILD/tests/programs/deny

# mpi RANKS COMMAND...: runs ranks with the back end, unless HVD_BACKEND says otherwise
mpi() {
    local ranks=$1
    shift
    HVD_BACKEND=${HVD_BACKEND-mpi} timeout -k 5 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$@"
}

# every RANKS [NAME=VALUE]... COMMAND...: all ranks must print ok
every() {
    local ranks=$1
    shift
    mpi "$ranks" env "$@" >"$TMP/ranks" 2>"$TMP/errors"
    local rc=$?
    cat "$TMP/ranks" "$TMP/errors"
    [ "$rc" -eq 0 ] && [ "$(grep -c ': ok$' "$TMP/ranks")" -eq "$ranks" ]
}

# Whether ALGORITHM ran, by the timeline of rank 0.
ran() { # ALGORITHM
    grep -q "$1" "$TMP/timeline" || {
        echo "$1 did not run"
        return 1
    }
}

flat() { # RANKS [OPTION]
    rm -f "$TMP/timeline"
    every "$1" HVD_MPI_FLAT=1 HVD_TIMELINE="$TMP/timeline" "$ALL" ${2:+"$2"} || return 1
    [ "$1" -eq 1 ] || { ran mpi_allreduce && ran mpi_moves; }
}

by_hosts() { # HOSTS [OPTION]
    rm -f "$TMP/timeline"
    every ${#1} HVD_TIMELINE="$TMP/timeline" "$ALL" -q -h "$1" ${2:+"$2"} && ran mpi_allreduce && ran mpi_moves
}

# Ranks leave in the middle of a sum. All of them call MPI_Finalize, or mpirun would fail.
midway() { # RANKS [NAME=VALUE]... midway [OPTION]
    local ranks=$1
    shift
    every "$ranks" "$@" "$TMP"
}

# The sum never ends: no rank calls MPI_Finalize, so mpirun fails.
never_ends() { # NAME=VALUE... midway OPTION
    local rc=0
    rm -rf "$TMP/together"
    mkdir "$TMP/together"
    mpi 2 env "$@" "$TMP/together" >"$TMP/ranks" 2>&1 || rc=$?
    cat "$TMP/ranks"
    [ "$rc" -ne 124 ] && [ "$(grep -c '^rank .*: ok$' "$TMP/ranks")" -eq 2 ]
}

# MPI_Comm_free takes longer than hvd waits for it: MPI_Finalize is called all the same.
slow_free() {
    every 2 HVD_MPI_FLAT=1 LD_PRELOAD="$BUILD/tests/fake/mpi_slow_free.so" "$ALL" -q
}

# As between machines: data that MPI holds back for another rank moves only when MPI is called.
over_tcp() { # HOSTS
    every ${#1} OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_btl_tcp_sndbuf=4096 \
        OMPI_MCA_btl_tcp_rcvbuf=4096 "$ALL" -q -h "$1"
}

# The log names the MPI once.
one_line() {
    HVD_LOG_LEVEL=info mpi 2 "$ALL" -q >"$TMP/ranks" 2>&1 || return 1
    grep 'back end mpi' "$TMP/ranks"
    [ "$(grep -c 'back end mpi: Open MPI v[0-9.]* (/.*libmpi.so.*), MPI_THREAD_MULTIPLE' "$TMP/ranks")" -eq 1 ]
}

# Without the setting MPI is not even loaded.
untouched() {
    HVD_BACKEND='' mpi 2 bash -c "LD_DEBUG=files '$ALL' -q 2>'$TMP/files.'\$OMPI_COMM_WORLD_RANK" || return 1
    ! grep -q 'libhvd_mpi\|libmpi.so' "$TMP"/files.*
}

# An MPI with a libpmix.so.2 of its own, as Open MPI 5 has: the launcher is asked through that one, and no other is
# loaded.
own_pmix() {
    local system
    system=$(readlink -f "$("${CC:-gcc}" -print-file-name=libpmix.so.2)")
    rm -rf "$TMP/pmix" && mkdir "$TMP/pmix" && cp "$system" "$TMP/pmix/libpmix.so.2" &&
        "${CC:-gcc}" -shared -o "$TMP/pmix/plugin.so" -Wl,--no-as-needed,--enable-new-dtags,-rpath,"$TMP/pmix:$BUILD" \
            "$TMP/pmix/libpmix.so.2" "$BUILD/libhvd_mpi.so" || return 1
    HVD_MPI_PLUGIN=$TMP/pmix/plugin.so mpi 2 bash -c \
        "LD_DEBUG=files '$ALL' -q 2>'$TMP/pmix/files.'\$OMPI_COMM_WORLD_RANK" || return 1
    cat "$TMP"/pmix/files.* | grep -o 'calling init: .*/libpmix.so.2.*' | sort | uniq -c | tee "$TMP/pmix/loaded"
    [ "$(wc -l <"$TMP/pmix/loaded")" -eq 1 ] && grep -q "2 calling init: $TMP/pmix/libpmix.so.2" "$TMP/pmix/loaded"
}

# A program that uses MPI itself finalizes the MPI that it has initialized.
own() {
    mpi 2 "$BUILD/tests/programs/mpi_own" multiple >"$TMP/ranks" 2>&1
    local rc=$?
    cat "$TMP/ranks"
    [ "$rc" -eq 0 ] && [ "$(grep -c '^both: ok' "$TMP/ranks")" -eq 2 ]
}

own_but() { # WORDS ARGUMENTS...
    local words=$1
    shift
    refused "$words" env HVD_BACKEND=mpi mpirun --oversubscribe -np 2 "$BUILD/tests/programs/mpi_own" "$@"
}

# Ranks with different settings: one sentence each, at once.
at_odds() {
    local begin=$EPOCHREALTIME
    refused 'HVD_BACKEND is mpi on rank 0 and host on rank 1' mpirun --oversubscribe -np 3 bash -c \
        "[ \$OMPI_COMM_WORLD_RANK = 1 ] && export HVD_BACKEND=host || export HVD_BACKEND=mpi; exec '$ALL' -q" &&
        [ "$(since_ms "$begin")" -lt 20000 ]
}

# An MPI that grants fewer threads than hvd needs.
too_few_threads() {
    refused 'this MPI allows calls from one thread only' env HVD_BACKEND=mpi mpirun --oversubscribe -np 2 \
        -x LD_PRELOAD="$BUILD/tests/fake/mpi_funneled.so" "$ALL" -q
}

# The setting of rank 0 counts.
flat_on_rank_0() {
    rm -f "$TMP/timeline"
    HVD_TIMELINE=$TMP/timeline mpi 2 bash -c "HVD_MPI_FLAT=\$((1 - OMPI_COMM_WORLD_RANK)) exec '$ALL' -q" >"$TMP/ranks" 2>&1
    cat "$TMP/ranks"
    [ "$(grep -c ': ok$' "$TMP/ranks")" -eq 2 ] && ran mpi_allreduce
}

# One rank works on alone after hvd_shutdown(): the others do not wait for it in MPI_Finalize, and mpirun does not
# report them.
works_on() {
    mpi 2 bash -c "'$ALL' -q -s \$((OMPI_COMM_WORLD_RANK * 6)) && echo rank \$OMPI_COMM_WORLD_RANK ended at \${EPOCHREALTIME/./}" >"$TMP/ranks" 2>&1 || return 1
    cat "$TMP/ranks"
    [ "$(grep -c ': ok$' "$TMP/ranks")" -eq 2 ] &&
        [ $(($(sed -n 's/rank 1 ended at //p' "$TMP/ranks") - $(sed -n 's/rank 0 ended at //p' "$TMP/ranks"))) -gt 3000000 ]
}

# The same where MPI_Finalize waits for all ranks, as in MPICH and UCX: the others wait, and say so.
waits() {
    OMPI_MCA_async_mpi_finalize=0 mpi 2 bash -c "'$ALL' -q -s \$((OMPI_COMM_WORLD_RANK * 7)) && echo rank \$OMPI_COMM_WORLD_RANK ended well" >"$TMP/ranks" 2>&1 || { cat "$TMP/ranks"; return 1; }
    cat "$TMP/ranks"
    [ "$(grep -c ' ended well$' "$TMP/ranks")" -eq 2 ] && [ "$(grep -c 'hvd.0.: warn: this rank is in MPI_Finalize, which waits' "$TMP/ranks")" -eq 1 ]
}

# The wait in MPI_Finalize has a limit that the user sets.
waits_no_longer() {
    local begin=$EPOCHREALTIME
    HVD_MPI_FINALIZE_TIMEOUT=1 OMPI_MCA_async_mpi_finalize=0 mpi 2 bash -c "'$ALL' -q -s \$((OMPI_COMM_WORLD_RANK * 60))" >"$TMP/ranks" 2>&1
    cat "$TMP/ranks"
    [ "$(since_ms "$begin")" -lt 50000 ] && grep 'hvd.0.: warn: MPI_Finalize has not ended in time.* (HVD_MPI_FINALIZE_TIMEOUT: 1 s); this' "$TMP/ranks"
}

# Rank numbers set by hand that are not MPI's.
disagree() {
    head -c 32 /dev/urandom >"$TMP/key" && chmod 600 "$TMP/key"
    refused 'rank 0 of 2 is rank 1 of 2 in MPI' env HVD_BACKEND=mpi HVD_SIZE=2 HVD_KEY_FILE="$TMP/key" \
        HVD_RENDEZVOUS="127.0.0.1:$(free_port)" mpirun --oversubscribe -np 2 bash -c \
        "HVD_RANK=\$((1 - OMPI_COMM_WORLD_RANK)) exec '$ALL' -q"
}

killed() { # [NAME=VALUE]...
    local begin=$EPOCHREALTIME rc=0
    mpi 4 env "$@" "$ALL" -q -k 1 >"$TMP/ranks" 2>&1 || rc=$?
    cat "$TMP/ranks"
    echo "exit code $rc after $(since_ms "$begin") ms"
    [ "$rc" -ne 0 ] && [ "$rc" -ne 124 ] && [ "$(since_ms "$begin")" -lt 60000 ] &&
        grep -q 'rank 1.*\(signal 9\|lost\|connection\)\|on signal 9' "$TMP/ranks"
}

# Ranks started by a launcher that MPI does not know.
alone() {
    refused 'MPI sees rank . of 2 alone' env HVD_BACKEND=mpi HVD_DOCTOR=off "$BUILD/hvdrun" -np 2 "$ALL" -q
}

elastic() {
    refused 'elastic job: MPI can neither lose a rank' env HVD_BACKEND=mpi "$BUILD/hvdrun" --min-np 1 -np 2 "$ALL" -q
}

# other_mpi WORDS: the library in $TMP/other is found first, and refused with WORDS
other_mpi() {
    refused "$1" env HVD_BACKEND=mpi LD_LIBRARY_PATH="$TMP/other:$LD_LIBRARY_PATH" "$ALL" -q &&
        grep -q "$TMP/other/libmpi.so.40\|libhvd_mpi.so" "$TMP/refused"
}

no_file() {
    rm -rf "$TMP/other" && mkdir "$TMP/other" && echo 'no library' >"$TMP/other/libmpi.so.40" &&
        other_mpi 'mpi-load'
}

other_version() {
    rm -rf "$TMP/other" && mkdir "$TMP/other" && cp "$BUILD/tests/fake/mpi.so" "$TMP/other/libmpi.so.40" &&
        other_mpi 'libmpi.so.40 (Open MPI v4.1.6).*mpi-path-mismatch'
}

no_plugin() {
    refused 'there is no /nowhere/libhvd_mpi.so: hvd was built without MPI' \
        env HVD_BACKEND=mpi HVD_MPI_PLUGIN=/nowhere/libhvd_mpi.so "$ALL" -q &&
        [ "$(grep -c 'there is no /nowhere' "$TMP/refused")" -eq 1 ] &&
        env HVD_BACKEND=auto HVD_MPI_PLUGIN=/nowhere/libhvd_mpi.so "$ALL" -q >"$TMP/quiet" 2>&1 &&
        ! grep -qi mpi "$TMP/quiet" &&
        [ "$(env HVD_BACKEND=mpi,host HVD_MPI_PLUGIN=/nowhere/libhvd_mpi.so "$ALL" -q 2>&1 |
            grep -c 'host instead')" -eq 1 ]
}

# plugin_by MPICC: builds the plugin as the makefile does, in a build folder that is kept
plugin_by() {
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory -C "$ROOT" BUILD="$TMP/build" SAN= \
        MPICC="$1" "$TMP/build/libhvd_mpi.so" >"$TMP/made" 2>&1 || { cat "$TMP/made"; return 1; }
}

# mpicc_with PATH MACRO: creates a wrapper at PATH that gives the compiler one more macro, as another mpi.h would, and
# counts its calls
mpicc_with() {
    printf '#!/bin/sh\necho >>"%s"\nexec mpicc -D%s "$@"\n' "$TMP/calls" "$2" >"$1" && chmod +x "$1"
}

# Another MPI in PATH, as by `module swap`, makes another plugin. The same MPI again makes none, and costs one
# call of mpicc.
swapped() {
    rm -rf "$TMP/build"
    mpicc_with "$TMP/mpicc" FIRST_MPI && plugin_by "$TMP/mpicc" && grep MPICC "$TMP/made" || return 1
    rm "$TMP/calls"
    plugin_by "$TMP/mpicc" || return 1
    ! grep MPICC "$TMP/made" || { echo 'made again for the same MPI'; return 1; }
    [ "$(wc -l <"$TMP/calls")" -eq 1 ] || { echo 'more than one call'; return 1; }
    mpicc_with "$TMP/mpicc" OTHER_MPI && plugin_by "$TMP/mpicc" && grep MPICC "$TMP/made"
}

for n in 1 2 3 5 8; do
    check "flat, $n ranks" flat "$n" "$([ "$n" -gt 3 ] && echo -q)"
done
check 'two hosts of two' by_hosts aabb
check 'uneven hosts' by_hosts aaabc
check 'hosts of one' by_hosts abc
check 'over TCP, in small pieces' over_tcp abcd
check 'over TCP, hosts of two' over_tcp aabb
check 'four uneven hosts, one of one rank' by_hosts aabbccd
check 'in place on some ranks, flat' flat 4 -mq
check 'in place on some ranks, flat, 2 ranks' flat 2 -m
check 'in place on some ranks, hosts of one' by_hosts abcde -m
check 'one line in the log' one_line
check 'MPI is not touched unasked' untouched
check 'an MPI with a PMIx of its own' own_pmix
check 'no process_vm_readv' every 2 HVD_MPI_FLAT=1 "$DENY" process_vm_readv EPERM "$ALL" -q
check 'ends without hvd_shutdown' every 3 HVD_MPI_FLAT=1 "$ALL" -q -x
check 'nobody else' env HVD_BACKEND=mpi HVD_MPI_FLAT=1 "$ALL" -q
check 'a program with its own MPI' own
check 'a program with its own MPI, of one thread' own_but 'call MPI_Init_thread with MPI_THREAD_MULTIPLE' single
check 'an MPI for too few threads' too_few_threads
check 'after MPI_Finalize' own_but 'has called MPI_Finalize' multiple late
check 'twice in a process' every 2 HVD_MPI_FLAT=1 "$ALL" -q -r 3
check 'ranks at odds' at_odds
check 'flat on rank 0 only' flat_on_rank_0
check 'a rank that works on alone' works_on
check 'a rank that works on alone, and MPI waits' at_best waits
check 'a rank that works on for too long' waits_no_longer
check 'ranks that MPI numbers otherwise' disagree
check 'a killed rank, flat' killed HVD_MPI_FLAT=1
check 'hvd_shutdown() in the middle of a sum' midway 2 HVD_MPI_FLAT=1 "$MIDWAY"
check 'hvd_shutdown() in the middle of a broadcast' midway 3 HVD_MPI_FLAT=1 "$MIDWAY" -m
check 'one rank calls hvd_shutdown() in the middle of a sum' midway 3 HVD_MPI_FLAT=1 "$MIDWAY" -o
check 'one rank calls hvd_shutdown() in the middle of a sum of this host' midway 3 "$MIDWAY" -o
check 'hvd_shutdown() in the middle of frozen steps' midway 3 HVD_MPI_FLAT=1 "$MIDWAY" -s
check 'a sum that never ends' at_best never_ends HVD_MPI_FLAT=1 "$MIDWAY" -f
check 'a slow MPI_Comm_free' slow_free
check 'without mpirun' alone
check 'an elastic job' elastic
check 'no library in the path of libraries' no_file
check 'another MPI in the path of libraries' other_version
check 'no plugin' no_plugin
check 'hvd is made with another MPI' swapped
check 'an unknown name' refused 'did you mean mpi' env HVD_BACKEND=mip "$ALL" -q
check 'no time to finalize in' refused 'HVD_MPI_FINALIZE_TIMEOUT=soon' env HVD_BACKEND=mpi HVD_MPI_FINALIZE_TIMEOUT=soon "$ALL" -q
exit "$failed"
