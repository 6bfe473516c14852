/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_library: finds libhvd_mpi.so, lets the loader find the site's libmpi for it, and checks that
 * this is an MPI that the plugin was compiled for. Any thread; what is loaded stays loaded.
 */
#ifndef HVD_BACKEND_MPI_LIBRARY_H
#define HVD_BACKEND_MPI_LIBRARY_H

#include "core/backend/mpi_plugin.h"
#include "core/base/err.h"

struct mpi_library {
    const struct mpi_plugin *plugin;
    char version[64]; /* the start of libmpi's own text: "Open MPI v4.1.4" */
    char file[512];   /* path of the libmpi that is used */
};

/* The plugin is the file HVD_MPI_PLUGIN, else libhvd_mpi.so beside libhvd.so. -ENOENT: it is not
 * there, or no MPI; -EINVAL: another MPI than it was compiled for. err names both files and the
 * doctor's check. */
int mpi_library_load(struct mpi_library *ret, struct err *err);

/* Returns whether the plugin's file exists. */
bool mpi_library_built(void);

/* Returns whether the MPI with this version text runs a plugin that was compiled for this family
 * and (Open MPI only) this major version. The loader does not notice two cases: a program that has
 * already loaded an MPI of the other family, and another major version of Open MPI (3, 4 and 5 are
 * all libmpi.so.40). Pure. */
bool mpi_library_fits(const char *family, unsigned major, const char *text);

#endif
