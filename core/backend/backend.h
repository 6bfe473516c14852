/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: a way to carry out operations that is found at run time: a library of the machine or of
 * the framework. A back end brings algorithms (core/coll/algorithm.h), which coll asks before its
 * own. The host (memory and sockets: core/coll itself) is always there.
 *
 * The table is in backends.c. Each rank writes into its card what it can use (choice.h), before
 * anything is opened. Every rank then makes the same choice from all cards. Everything here runs
 * inside hvd_init() or under the progress lock, except that built and probe may be called on any
 * thread (backends_tell(), backends_probe()).
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
    const char *name; /* the back end's name in HVD_BACKEND */

    /* Not DEVICE_NONE: a back end for tensors of GPUs, which device.h handles; there is nothing
     * to open. */
    enum device_way way;

    /* Why an elastic job cannot use the back end; NULL: it can. */
    const char *never_elastic;

    /* Returns whether hvd was built with this back end. Loads nothing. NULL: always. */
    bool (*built)(void);

    /* Finds out whether this rank can use the back end. Local, cheap, without side effects. 0: yes;
     * ret_text is what must be the same on every rank (the library's name and version). -errno: no,
     * err says why. -ESHUTDOWN: this process can never use it again, and may not even be able to
     * reach the other ranks: hvd_init() fails at once. */
    int (*probe)(char *ret_text, size_t size, struct err *err);

    /* Called once, in the first epoch, on a mesh that is up: every rank opens the same back ends
     * in the same order. May communicate (backend_allgather). Blocks until the deadline at most. */
    int (*open)(struct coll *coll, uint64_t deadline, void **ret_state, struct err *err);

    /* The algorithms of an open back end for this mesh, as a list that ends with NULL. They get
     * state as coll->backend. */
    const struct algorithm *const *(*algorithms)(const void *state, const struct mesh *mesh);

    /* "Open MPI 4.1.4 (/usr/lib/libmpi.so.40), between hosts": for the log. */
    void (*describe)(const void *state, char *dst, size_t size);

    /* Returns whether the program itself may call the library, on any thread, while hvd uses it.
     * NULL: no. */
    bool (*threads)(const void *state);

    /* Called after the coll is destroyed. Bounded in time. lost: a rank was lost. */
    void (*close)(void *state, bool lost);
};

/* Gathers bytes of every rank in the order of ranks, through the coll's own memory and links.
 * For use outside of the engine's loop. */
int backend_allgather(struct coll *coll, const void *mine, void *ret_all, size_t bytes,
                      uint64_t deadline, struct err *err);

extern const struct backend_ops mpi_backend;

#endif
