/* SPDX-License-Identifier: Apache-2.0
 *
 * libs: the libraries that are found, opened and asked for their version, a row each. Main thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_LIBS_H
#define HVD_DIAGNOSTICS_PROBER_LIBS_H

#include "diagnostics/prober/copies.h"

/* nccl cudart mpi pmix hwloc ucx libfabric ibverbs numa; NULL: another name. */
const struct library *libs_find(const char *name);

/* "NCCL version 2.27.7+cuda13.0" of a file: "2.27.7" and "13.0"; false where there is none. */
bool libs_nccl_text(const char *path, char version[32], char cuda[16]);

#endif
