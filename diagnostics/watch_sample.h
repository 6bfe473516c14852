/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_sample: the values that the conditions of a watch measure. Private to watch.c; one thread.
 */
#ifndef HVD_DIAGNOSTICS_WATCH_SAMPLE_H
#define HVD_DIAGNOSTICS_WATCH_SAMPLE_H

#include <sys/types.h>

#include "diagnostics/cgroup.h"
#include "diagnostics/machine.h"

#define SAMPLE_NICS 32
#define SAMPLE_TEXT 320

struct sample_nic {
    char name[16];
    int64_t errors, changes;
};

struct sample_process {
    pid_t pid;
    int stuck; /* samples in a row */
};

/* Lines of the kernel's log since the sample before. */
struct sample_kernel {
    int oom, xid;
    char oom_line[200], xid_line[200];
};

struct sampler {
    const struct machine *machine;
    struct cgroup cgroup;
    bool has_cgroup;
    bool first; /* the first sample: there are no earlier counters */
    uint64_t now, before;
    int64_t oom_kills, periods, throttled;
    int64_t swapped; /* pages in and out */
    int nnics;
    struct sample_nic nics[SAMPLE_NICS];
    int64_t nic_errors, nic_changes; /* counts of the worst interface in this sample */
    char nic_errors_name[16], nic_changes_name[16];
    int kmsg; /* descriptor, -1: not readable */
    struct sample_kernel kernel;
    struct sample_process *processes; /* owned */
    size_t nprocesses;
};

/* Measures one value; NAN where that is not possible. text: a line with the figures. */
typedef double sample_f(struct sampler *l, char text[SAMPLE_TEXT]);

void sample_init(struct sampler *l, const struct machine *m);
void sample_fini(struct sampler *l);

/* Reads what several conditions share. Call it first in each sample. */
void sample_begin(struct sampler *l, uint64_t now);

sample_f sample_oom_kills, sample_kernel_oom, sample_xid, sample_throttle, sample_memory,
    sample_shm, sample_nic_errors, sample_nic_changes, sample_stuck, sample_swap;

#endif
