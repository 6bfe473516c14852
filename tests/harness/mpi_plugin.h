/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: what the fake plugins of the tests of core/backend/mpi_process have in common: an MPI
 * of one rank that can always be initialized. A test has progress() and leave() of its own. And a
 * mesh on which nothing ever happens: the process that waits for MPI_Init_thread drives its mesh.
 */
#ifndef HVD_TESTS_HARNESS_MPI_PLUGIN_H
#define HVD_TESTS_HARNESS_MPI_PLUGIN_H

#include "core/backend/mpi_plugin.h"
#include "core/transport/mesh.h"
#include "core/transport/net.h"

static int mpi_plugin_enter(struct mpi_setup *s)
{
    s->ours = true;
    s->size = 1;
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
    .version = MPI_PLUGIN_VERSION, .enter = mpi_plugin_enter, .why = mpi_plugin_why

#endif
