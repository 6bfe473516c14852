/* SPDX-License-Identifier: Apache-2.0
 *
 * libs: a table of the libraries whose copies hvd-probe finds and whose version it reads. Main
 * thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_LIBS_H
#define HVD_DIAGNOSTICS_PROBER_LIBS_H

#include "diagnostics/prober/copies.h"

/* Finds a row: nccl cudart mpi pmix hwloc ucx libfabric ibverbs numa; NULL: another name. */
const struct library *libs_find(const char *name);

/* Finds "NCCL version 2.27.7+cuda13.0" in a file: version "2.27.7", cuda "13.0"; false: there is
 * none. */
bool libs_nccl_text(const char *path, char version[32], char cuda[16]);

#endif
