/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_looks: what the conditions of a watch measure. Private to watch.c; one thread.
 */
#ifndef HVD_DIAGNOSTICS_WATCH_LOOKS_H
#define HVD_DIAGNOSTICS_WATCH_LOOKS_H

#include <sys/types.h>

#include "diagnostics/cgroup.h"
#include "diagnostics/machine.h"

#define LOOKS_NICS 32
#define LOOKS_TEXT 320

struct looks_nic {
    char name[16];
    int64_t errors, changes;
};

struct looks_process {
    pid_t pid;
    int stuck; /* looks in a row */
};

/* Lines of the kernel's log since the look before. */
struct looks_kernel {
    int oom, xid;
    char oom_line[200], xid_line[200];
};

struct looks {
    const struct machine *machine;
    struct cgroup cgroup;
    bool has_cgroup;
    bool first; /* nothing to compare with yet */
    uint64_t now, before;
    int64_t oom_kills, periods, throttled;
    int64_t swapped; /* pages in and out */
    int nnics;
    struct looks_nic nics[LOOKS_NICS];
    int64_t nic_errors, nic_changes; /* of this look, of the worst interface */
    char nic_errors_name[16], nic_changes_name[16];
    int kmsg; /* descriptor, -1: not readable */
    struct looks_kernel kernel;
    struct looks_process *processes; /* owned */
    size_t nprocesses;
};

/* What is measured: NAN where it cannot be. text: a line with the figures. */
typedef double looks_f(struct looks *l, char text[LOOKS_TEXT]);

void looks_init(struct looks *l, const struct machine *m);
void looks_fini(struct looks *l);

/* Reads what several conditions share: before the others. */
void looks_begin(struct looks *l, uint64_t now);

looks_f looks_oom_kills, looks_kernel_oom, looks_xid, looks_throttle, looks_memory, looks_shm,
    looks_nic_errors, looks_nic_changes, looks_stuck, looks_swap;

#endif
