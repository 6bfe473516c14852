/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_level: from how many threads MPI may be called: what is wanted, and whether what there is
 * will do.
 */
#ifndef HVD_BACKEND_MPI_LEVEL_H
#define HVD_BACKEND_MPI_LEVEL_H

#include <stdbool.h>

#include "core/backend/mpi_plugin.h"
#include "core/base/err.h"

/* "FUNNELED", as in MPI_THREAD_FUNNELED. */
const char *mpi_level_name(enum mpi_level level);

/* By HVD_MPI_THREADS=multiple|funneled; forced: it is set, so no less will do. -EINVAL. */
int mpi_level_wanted(enum mpi_level *ret, bool *ret_forced, struct err *err);

/* -ENOTSUP. */
int mpi_level_check(enum mpi_level there, enum mpi_level wanted, bool forced, struct err *err);

#endif
