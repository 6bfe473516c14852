/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load: finds libhvd_mpi.so, lets the loader find the site's libmpi for it, and checks that
 * this is the MPI that the plugin was compiled for. Any thread, once a process; it stays loaded.
 */
#ifndef HVD_BACKEND_MPI_LOAD_H
#define HVD_BACKEND_MPI_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "core/backend/mpi_plugin.h"
#include "core/base/err.h"

struct mpi_found {
    const struct mpi_plugin *plugin;
    char version[64]; /* "Open MPI 4.1.4" */
    char file[512];   /* path of the libmpi that is used */
};

/* The plugin is the file HVD_MPI_PLUGIN, else libhvd_mpi.so beside libhvd.so. -ENOENT: it is not
 * there, or no MPI; -EINVAL: another MPI than it was compiled for. err names both files and the
 * doctor's check. */
int mpi_load(struct mpi_found *ret, struct err *err);

/* Returns whether the plugin's file exists. */
bool mpi_built(void);

#endif
