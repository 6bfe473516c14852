/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: what the fake plugins of the tests of core/backend/mpi_process have in common: an MPI
 * of one rank that can always be initialized. A test has progress() and finalize() of its own. And
 * a mesh on which nothing ever happens: the process that waits for MPI_Init_thread drives its mesh.
 */
#ifndef HVD_TESTS_HARNESS_MPI_PLUGIN_H
#define HVD_TESTS_HARNESS_MPI_PLUGIN_H

#include "core/backend/mpi_plugin.h"
#include "core/transport/mesh.h"
#include "core/transport/net.h"

static enum mpi_state mpi_plugin_state;
static enum mpi_level mpi_plugin_most = MPI_LEVEL_MULTIPLE; /* highest level of this MPI */

static enum mpi_state mpi_plugin_ask(enum mpi_level *ret_level)
{
    *ret_level = MPI_LEVEL_SERIALIZED;
    return mpi_plugin_state;
}

static int mpi_plugin_init(enum mpi_level wanted, enum mpi_level *ret_level)
{
    *ret_level = wanted < mpi_plugin_most ? wanted : mpi_plugin_most;
    mpi_plugin_state = MPI_STATE_RUNS;
    return 0;
}

static int mpi_plugin_prepare(mpi_reduce_f reduce, int *ret_rank, int *ret_size)
{
    *ret_rank = 0;
    *ret_size = 1;
    return 0;
}

static const char *mpi_plugin_why(void)
{
    return "no reason";
}

static struct mesh_net mpi_plugin_net = {.failed = true, .wake = {.fd = -1}};
static struct mesh mpi_plugin_mesh = {.net = &mpi_plugin_net};

/* The functions of a struct mpi_plugin that are the same in all tests. */
#define MPI_PLUGIN_COMMON                                                                          \
    .version = MPI_PLUGIN_VERSION, .state = mpi_plugin_ask, .init = mpi_plugin_init,               \
    .prepare = mpi_plugin_prepare, .why = mpi_plugin_why

#endif
