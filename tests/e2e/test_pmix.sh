#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks under mpirun bootstrap through PMIx, without MPI in the program, on one host and over two network namespaces: they
# need neither HVD_KEY_FILE nor HVD_RENDEZVOUS. Without a libpmix, and under MPICH's mpirun, they need both, and are
# refused without them.
# timeout: 900
# takes: 9 s, waiting
# shellcheck disable=SC2317,SC2154,SC2030,SC2031  # functions that check calls; what common.sh sets; subshells
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

command -v mpirun >/dev/null || skip_all openmpi-bin 'no mpirun here'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$TMP
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi() {
    timeout -k 5 200 mpirun "$@"
}

one_host() { # RANKS ROUNDS
    mpi --oversubscribe -np "$1" "$SUM" "$2" 1 >"$TMP/ranks" || return 1
    cat "$TMP/ranks"
    [ "$(grep -c "of $1 on host 0 of 1: sum ok" "$TMP/ranks")" -eq $(($1 * $2)) ]
}

# A rank never calls hvd_init: the others do not wait for ever.
one_stays_away() {
    refused 'not called hvd_init' env HVD_START_TIMEOUT=4 mpirun --oversubscribe -np 2 \
        bash -c "[ \$OMPI_COMM_WORLD_RANK = 0 ] && exec '$SUM'; sleep 40"
}

# by_numbers MPIRUN...: three ranks join at a rendezvous, with a key
by_numbers() {
    head -c 32 /dev/urandom >"$TMP/key" && chmod 600 "$TMP/key" || return 1
    HVD_KEY_FILE=$TMP/key HVD_RENDEZVOUS=127.0.0.1:$(free_port) timeout -k 5 100 "$@" "$SUM" 2 1 >"$TMP/ranks" ||
        return 1
    cat "$TMP/ranks"
    [ "$(grep -c 'of 3 on host 0 of 1: sum ok' "$TMP/ranks")" -eq 6 ]
}

# Like an Open MPI with PMIx inside: the ranks find no libpmix, only a file of that name that is no library.
mkdir -p "$TMP/none" && echo 'no library' >"$TMP/none/libpmix.so.2"
none=LD_LIBRARY_PATH=$TMP/none:$LD_LIBRARY_PATH

alone_without_pmix() {
    mpi --oversubscribe -np 1 env "$none" "$SUM" 1 1 | grep 'rank 0 of 1 on host 0 of 1: sum ok'
}

hydra() {
    refused 'PMI_SIZE=2: this rank was started by an mpirun' mpiexec.hydra -np 2 "$SUM" &&
        refused 'MPI_LOCALNRANKS=2: this rank was started by an mpirun' mpiexec.hydra -pmi-port -np 2 "$SUM" &&
        mpiexec.hydra -np 1 "$SUM" 1 1 | grep 'rank 0 of 1 on host 0 of 1: sum ok' &&
        by_numbers mpiexec.hydra -np 3
}

# When mpirun starts something by ssh on 10.213.7.2, it runs in the namespace that stands for that host.
two_hosts() {
    cat >"$TMP/rsh" <<EOF
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec ip netns exec ${hosts[1]} bash -c "\$*"
EOF
    chmod +x "$TMP/rsh"
    printf '%s slots=2\n' 10.213.7.1 10.213.7.2 >"$TMP/hostfile"
    on "${hosts[0]}" timeout -k 5 200 mpirun --hostfile "$TMP/hostfile" -np 4 --map-by slot --bind-to none \
        --mca plm_rsh_agent "$TMP/rsh" --mca oob_tcp_if_include veth0 -x LD_LIBRARY_PATH "$SUM" 2 2
}

check 'one rank' one_host 1 1
check 'four ranks on one host' one_host 4 1
check 'two ranks, twenty times init and shutdown' one_host 2 20
check 'a rank that stays away' one_stays_away
check 'no libpmix' refused 'Put libpmix.so.2 on every host .*or set HVD_RENDEZVOUS' mpirun --oversubscribe -np 2 env "$none" "$SUM"
check 'no libpmix, a rendezvous by hand' by_numbers mpirun --oversubscribe -np 3 env "$none"
check 'no libpmix, one rank' alone_without_pmix
if command -v mpiexec.hydra >/dev/null; then
    check "MPICH's launcher" hydra
else
    skip_part hydra mpich 'no mpiexec.hydra here'
fi
if can_netns && make_hosts; then
    check 'two hosts' two_hosts
else
    skip_part hosts root 'no network namespaces here'
fi
exit "$failed"
