/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_level: the thread support that hvd wants of MPI, and whether the support that MPI provides
 * suffices.
 */
#ifndef HVD_BACKEND_MPI_LEVEL_H
#define HVD_BACKEND_MPI_LEVEL_H

#include <stdbool.h>

#include "core/backend/mpi_plugin.h"
#include "core/base/err.h"

/* "FUNNELED", as in MPI_THREAD_FUNNELED. */
const char *mpi_level_name(enum mpi_level level);

/* The level wanted, from HVD_MPI_THREADS=multiple|funneled. *ret_forced: the variable is set, and a
 * lower level is refused. -EINVAL: another value. */
int mpi_level_wanted(enum mpi_level *ret, bool *ret_forced, struct err *err);

/* -ENOTSUP: the level that MPI provides does not suffice. */
int mpi_level_check(enum mpi_level there, enum mpi_level wanted, bool forced, struct err *err);

#endif
