/* SPDX-License-Identifier: Apache-2.0
 *
 * setting: what the job is that the checks are for, and how far they may go.
 *
 * Filled by the command line (or the agent from its job), read by checks and probes. Thresholds
 * follow it. Plain data; strings are borrowed.
 */
#ifndef HVD_DIAGNOSTICS_SETTING_H
#define HVD_DIAGNOSTICS_SETTING_H

#include <stdbool.h>
#include <stdint.h>

enum profile {
    PROFILE_CPU = 1,      /* ranks compute on CPUs */
    PROFILE_GPU = 2,      /* ranks use NVIDIA GPUs: NCCL, CUDA */
    PROFILE_K8S = 4,      /* a pod; beside CPU or GPU */
    PROFILE_LAUNCHER = 8, /* the machine that starts ranks elsewhere and runs none */
};

struct setting {
    unsigned profiles; /* or of enum profile */
    int ranks;         /* of the whole job, 0: unknown */
    int local_ranks;   /* on this machine, at least 1 */
    int gpus;          /* asked for on this machine; -1: not said */
    int level;         /* 1: reads only; 2: loads this machine for seconds; 3: and the network */
    int timeout_ms;    /* for all probes together, and again for those that run alone */
    const char
        *data_dir; /* where the data set is, for storage checks; NULL: the current directory */
    const char *interfaces; /* HVD_IFACE or NULL */
    const char *prober;     /* path of hvd-probe; NULL: beside this program */
};

/* From the environment that launchers set (HVD_*, OMPI_*, SLURM_*, KUBERNETES_SERVICE_HOST, NVIDIA
 * devices): profiles, ranks, local_ranks; the rest are the defaults. */
struct machine;
void setting_guess(struct setting *s, const struct machine *m);

#endif
