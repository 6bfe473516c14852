/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: what hvd could use on this machine: frameworks, controllers, libraries. For `hvdrun
 * --check-build` and the check hvd-build; from the answers of hvd-probe alone. One thread.
 */
#ifndef HVD_DIAGNOSTICS_BACKENDS_H
#define HVD_DIAGNOSTICS_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnostics/machine.h"

struct backends {
    char torch[64], horovod[64], python[128]; /* versions; python: its path; empty: not found */
    char nccl[64], mpi[64], pmix[64];         /* "2.27.7", "Open MPI 4.1.4"; empty: none */
    char mpi_path[256];
};

/* Fills ret from the answers framework, nccl, mpi and pmix in m. A probe that was not run leaves
 * its fields empty. */
void backends_of(const struct machine *m, struct backends *ret);

/* Runs the probes that backends_of() reads, then fills ret. 0 or -errno; ret is filled as far as
 * answers arrived. */
int backends_look(struct backends *ret);

/* "PyTorch 2.6.0, NCCL 2.27.7, Open MPI 4.1.4": one line. */
void backends_text(const struct backends *b, char *dst, size_t size);

#endif
