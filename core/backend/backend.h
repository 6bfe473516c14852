/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: a way to carry out operations that is found at run time: a library of the machine or of
 * the framework. A back end brings algorithms (core/coll/algorithm.h), which coll asks before its
 * own. The host (memory and sockets: core/coll itself) is always there.
 *
 * The table is in backends.c. What a rank can use it says in its card (choice.h), before anything
 * is opened, so that every rank makes the same choice from what all of them said. Everything here
 * runs inside hvd_init() or under the progress lock.
 */
#ifndef HVD_BACKEND_BACKEND_H
#define HVD_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/device.h"
#include "core/base/err.h"
#include "core/coll/algorithm.h"

struct backend_ops {
    const char *name; /* as in HVD_BACKEND */

    /* Not DEVICE_NONE: for tensors of GPUs, of which device.h takes care: there is nothing to open.
     */
    enum device_way way;

    /* NULL: an elastic job can use it. Else why it cannot. */
    const char *never_elastic;

    /* NULL: yes. Was hvd built with it? Nothing is loaded. */
    bool (*built)(void);

    /* Can this rank use it? Local, cheap, changes nothing. 0, ret_text: what must be the same on
     * every rank (the library's name and version); -errno: why not; -ESHUTDOWN: it never can again,
     * and perhaps not even meet the others: hvd_init() fails at once. */
    int (*probe)(char *ret_text, size_t size, struct err *err);

    /* Once, in the first epoch: every rank opens the same ones, in the same order, on a mesh that
     * is up. It may ask the other ranks (backend_allgather). Blocks until the deadline at most. */
    int (*open)(struct coll *coll, uint64_t deadline, void **ret_state, struct err *err);

    /* Of an open one, for this mesh: its algorithms (ends with NULL), which get state as
     * coll->backend. */
    const struct algorithm *const *(*algorithms)(const void *state, const struct mesh *mesh);

    /* "Open MPI 4.1.4 (/usr/lib/libmpi.so.40), between hosts": for the log. */
    void (*describe)(const void *state, char *dst, size_t size);

    /* NULL: no. The program may call the library beside hvd, on any thread. */
    bool (*threads)(const void *state);

    /* After the coll is destroyed. Bounded. lost: not all ranks are left. */
    void (*close)(void *state, bool lost);
};

/* bytes of every rank, in the order of ranks: through the coll's own memory and links, from outside
 * the engine's loop. */
int backend_allgather(struct coll *coll, const void *mine, void *ret_all, size_t bytes,
                      uint64_t deadline, struct err *err);

extern const struct backend_ops mpi_backend, nccl_backend, staged_backend;

#endif
