#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks under srun, by a Slurm in a private directory: munged, slurmctld and two slurmd, each in a network namespace that
# stands for its node; all are ended at the end. With PMIx; without it and with a key file; without a key; under MPICH's
# mpirun, whose proxies are tasks.
# timeout: 600
# takes: 9 s, waiting
# shellcheck disable=SC2317,SC2154  # functions that check calls; what common.sh sets
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"

PATH=$PATH:/usr/sbin:/sbin
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || skip_all slurm-wlm "no $program here"
done
[ "$(id -u)" -eq 0 ] || skip_all root 'slurmd wants to be root'
if ! can_netns || ! make_hosts; then
    skip_all root 'no network namespaces here'
fi

# ip netns exec would mount a /sys without the control groups that slurmd needs.
within() { # HOST COMMAND...
    local host=$1
    shift
    nsenter --net="/run/netns/$host" "$@"
}

S=$TMP/slurm
mkdir -p "$S"/{state,spool,log,run,tmp.na,tmp.nb}
chmod 755 "$TMP" "$S" "$S/run"
pids=()
stop_slurm() {
    local pid
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[i]}" 2>/dev/null
    done
    for pid in "${pids[@]}"; do
        wait_until 5 not kill -0 "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
}
at_end+=(stop_slurm)

start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$S/log/$name.out" 2>&1 &
    pids+=($!)
}

host=$(hostname -s)
base=$(free_port)
cat >"$S/slurm.conf" <<EOF
ClusterName=hvdtest
SlurmctldHost=$host(10.213.7.1)
SlurmctldPort=$base
SlurmdPort=$((base + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$S/run/munge.socket
CredType=cred/munge
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool/%n
SlurmctldPidFile=$S/run/slurmctld.pid
SlurmdPidFile=$S/run/slurmd.%n.pid
SlurmctldLogFile=$S/log/slurmctld.log
SlurmdLogFile=$S/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerType=sched/builtin
SwitchType=switch/none
MpiDefault=none
TmpFS=$S/tmp.%n
NodeName=na NodeHostname=$host NodeAddr=10.213.7.1 CPUs=4 State=UNKNOWN
NodeName=nb NodeHostname=$host NodeAddr=10.213.7.2 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
head -c 1024 /dev/urandom >"$S/munge.key"
chmod 400 "$S/munge.key"
start munged munged --foreground --force --key-file="$S/munge.key" --socket="$S/run/munge.socket" \
    --pid-file="$S/run/munged.pid" --log-file="$S/log/munged.log" --seed-file="$S/run/seed" --num-threads=2
wait_until 30 [ -S "$S/run/munge.socket" ]
export SLURM_CONF=$S/slurm.conf
start slurmctld within "${hosts[0]}" slurmctld -D -c -f "$SLURM_CONF"
start slurmd-na within "${hosts[0]}" slurmd -D -N na -f "$SLURM_CONF"
start slurmd-nb within "${hosts[1]}" slurmd -D -N nb -f "$SLURM_CONF"
both_idle() {
    [ "$(within "${hosts[0]}" sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]
}
if ! wait_until 60 both_idle; then
    tail -n 20 "$S"/log/*
    echo "FAILED Slurm does not come up"
    exit 1
fi

step() { # RANKS NODES ARGUMENTS-OF-SRUN...: all ranks say that the sum is right
    local n=$1 nodes=$2
    shift 2
    within "${hosts[0]}" timeout -k 5 120 srun --immediate=60 -n "$n" -N "$nodes" --ntasks-per-node=$((n / nodes)) "$@" "$SUM" 2 "$nodes" \
        >"$TMP/ranks" || return 1
    cat "$TMP/ranks"
    [ "$(grep -c "of $n on host .*: sum ok" "$TMP/ranks")" -eq $((2 * n)) ]
}

# The resolver does not know the nodes' names here, so the rendezvous is given.
by_key_file() {
    head -c 32 /dev/urandom >"$TMP/key"
    chmod 600 "$TMP/key"
    HVD_KEY_FILE=$TMP/key HVD_RENDEZVOUS=10.213.7.1:$(free_port) step 4 2
}

# Four ranks below two tasks: Slurm numbers the proxies.
hydra() {
    local salloc=(nsenter --net="/run/netns/${hosts[0]}" salloc --immediate=60 -N 2 -n 4 --ntasks-per-node=2)
    head -c 32 /dev/urandom >"$TMP/key"
    chmod 600 "$TMP/key"
    refused 'PMI_SIZE=4: this rank was started by an mpirun' "${salloc[@]}" mpiexec.hydra -iface veth0 -np 4 "$SUM" &&
        HVD_KEY_FILE=$TMP/key HVD_RENDEZVOUS=10.213.7.1:$(free_port) timeout -k 5 100 \
            "${salloc[@]}" mpiexec.hydra -iface veth0 -np 4 "$SUM" 2 2 >"$TMP/ranks" || return 1
    cat "$TMP/ranks"
    [ "$(grep -c 'of 4 on host .*: sum ok' "$TMP/ranks")" -eq 8 ]
}

# A batch script is no task: its process is a world of 1, whatever the job's size.
batch_script() {
    cat >"$TMP/job.sh" <<EOF
#!/bin/bash
exec "$SUM" 1 1
EOF
    within "${hosts[0]}" timeout 120 sbatch --wait -n 2 -o "$TMP/batch.out" "$TMP/job.sh" || return 1
    cat "$TMP/batch.out"
    grep -q 'rank 0 of 1 on host 0 of 1: sum ok' "$TMP/batch.out"
}

check 'two tasks on one node, no PMIx, no key' step 2 1
check 'four tasks on two nodes, a key file' by_key_file
check 'four tasks on two nodes, no key' refused 'there is no key\|cannot resolve' \
    nsenter --net="/run/netns/${hosts[0]}" env HVD_START_TIMEOUT=3 srun --immediate=60 -N 2 -n 4 "$SUM"
if within "${hosts[0]}" srun --mpi=list 2>&1 | grep -q pmix; then
    check 'two tasks on one node, PMIx' step 2 1 --mpi=pmix
    check 'four tasks on two nodes, PMIx' step 4 2 --mpi=pmix
else
    skip_part pmix 'srun --mpi=pmix' "this Slurm has no PMIx plugin"
fi
check 'two tasks on one node, PMI-2' step 2 1 --mpi=pmi2
if command -v mpiexec.hydra >/dev/null; then
    check "MPICH's launcher" hydra
else
    skip_part hydra mpich 'no mpiexec.hydra here'
fi
check 'a batch script' batch_script
[ "$failed" -eq 0 ] || tail -n 15 "$S"/log/*.log
exit "$failed"
