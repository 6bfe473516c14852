/* SPDX-License-Identifier: Apache-2.0
 *
 * setting: the job that the checks are for, and how intrusive they may be.
 *
 * Filled by the command line (or by the agent from its job), read by checks and probes. Thresholds
 * depend on it. Plain data; strings are borrowed.
 */
#ifndef HVD_DIAGNOSTICS_SETTING_H
#define HVD_DIAGNOSTICS_SETTING_H

#include <stdbool.h>
#include <stdint.h>

enum profile {
    PROFILE_CPU = 1,      /* ranks compute on CPUs */
    PROFILE_GPU = 2,      /* ranks use NVIDIA GPUs: NCCL, CUDA */
    PROFILE_K8S = 4,      /* in a pod; combined with CPU or GPU */
    PROFILE_LAUNCHER = 8, /* the machine that starts ranks elsewhere and runs none */
};

struct setting {
    unsigned profiles; /* a bit set of enum profile */
    int ranks;         /* ranks of the whole job, 0: unknown */
    int local_ranks;   /* ranks on this machine, at least 1 */
    int gpus;          /* GPUs that the job wants on this machine; -1: unknown */
    int level;      /* 1: reads only; 2: also loads this machine for seconds; 3: also the network */
    int timeout_ms; /* time limit of all probes together; probes that run alone get the same time
                       again */
    const char
        *data_dir; /* where the data set is, for storage checks; NULL: the current directory */
    const char *interfaces; /* HVD_IFACE or NULL */
    const char *prober;     /* path of hvd-probe; NULL: beside this program */
};

/* Guesses profiles, ranks and local_ranks from the environment that launchers set (HVD_*,
 * OMPI_*, SLURM_*, KUBERNETES_SERVICE_HOST) and from NVIDIA devices. The other fields get their
 * defaults. */
struct machine;
void setting_guess(struct setting *s, const struct machine *m);

#endif
