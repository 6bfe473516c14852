/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_version: identifies an MPI library by its version text, and decides whether a plugin that was
 * compiled for another one runs with it. Pure. MPIs of a family have the same ABI if their files
 * have the same name (libmpi.so.12), which the loader checks: MPICH and its derivatives have one
 * ABI since 2014. The loader does not notice two cases: a program that has already loaded an MPI of
 * the other family, and another major version of Open MPI (3, 4 and 5 are all libmpi.so.40).
 */
#ifndef HVD_BACKEND_MPI_VERSION_H
#define HVD_BACKEND_MPI_VERSION_H

#include <stdbool.h>
#include <stddef.h>

#define MPI_FAMILY_OPEN  "Open MPI"
#define MPI_FAMILY_MPICH "MPICH"
#define MPI_FAMILY_OTHER "other"

/* Returns whether the MPI with this version text runs a plugin that was compiled for this family
 * and (Open MPI only) this major version. dst gets the MPI's name and version ("Intel MPI 2021.8"),
 * or the start of its text if it is unknown. */
bool mpi_version_fits(const char *family, unsigned major, const char *text, char *dst, size_t size);

#endif
