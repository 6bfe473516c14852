/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_version: which MPI a libmpi is, by its own words, and whether a plugin that was compiled for
 * one runs with it. Pure.
 *
 * A family is who can run each other's programs where the file's name (libmpi.so.12) is the same,
 * which the loader sees to: MPICH and what vendors make of it have one ABI since 2014. What the
 * loader does not see is a program that has brought an MPI of the other family along, and a major
 * version of Open MPI: 3, 4 and 5 are all libmpi.so.40.
 */
#ifndef HVD_BACKEND_MPI_VERSION_H
#define HVD_BACKEND_MPI_VERSION_H

#include <stdbool.h>
#include <stddef.h>

#define MPI_FAMILY_OPEN  "Open MPI"
#define MPI_FAMILY_MPICH "MPICH"
#define MPI_FAMILY_OTHER "other"

/* Whether who says text runs a plugin that was compiled for this family and, of Open MPI, this
 * major version. dst: its name and version ("Intel MPI 2021.8"); as it says it where it is not
 * known. */
bool mpi_version_fits(const char *family, unsigned major, const char *text, char *dst, size_t size);

#endif
