/* SPDX-License-Identifier: Apache-2.0
 *
 * agree: the allgather that back ends use while they are opened; see backend.h.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/backend.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"

#define NAP_MS 50

/* Sleeps until the mesh has an event. Returns as coll_progress() does. */
static int wait_once(struct coll *coll, struct err *err)
{
    struct mesh *mesh = coll->mesh;
    int rc = mesh_progress(mesh, NULL, err);
    if (rc < 0)
        return rc;
    mesh_sleep_begin(mesh);
    rc = coll_progress(coll);
    struct pollfd p = {.fd = mesh_fd(mesh), .events = POLLIN};
    if (rc == 1)
        poll(&p, 1, coll_wait(coll) ? 0 : NAP_MS);
    mesh_sleep_end(mesh);
    return rc;
}

/* Runs one operation from its start to its end. */
static int run(struct coll *coll, const struct coll_op *op, uint64_t deadline, struct err *err)
{
    struct err why = {0};
    int rc = coll_start(coll, op, &why);
    while (rc == 0 && (rc = coll_progress(coll)) == 1) {
        rc = wait_once(coll, &why);
        if (rc == 1 && deadline_passed(deadline))
            rc = err_set(&why, ETIMEDOUT, "timed out asking the other ranks");
        if (rc != 1)
            break;
        rc = 0;
    }
    if (rc == -ECONNRESET && !why.code)
        mesh_why(coll->mesh, NULL, &why);
    if (rc < 0 && !why.code)
        err_sys(&why, -rc, "asking the other ranks");
    if (rc < 0 && err)
        *err = why;
    return rc;
}

int backend_allgather(struct coll *coll, const void *mine, void *ret_all, size_t bytes,
                      uint64_t deadline, struct err *err)
{
    size_t size = (size_t)coll->mesh->size;
    auto_free size_t *counts = calloc(size, sizeof(*counts));
    if (!counts)
        return err_set(err, ENOMEM, "no memory to ask %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        counts[r] = bytes;
    struct coll_tensor t = {.in = mine, .out = ret_all, .count = bytes};
    struct coll_op op = {.kind = HVD_ALLGATHER,
                         .dtype = HVD_UINT8,
                         .prescale = 1.0,
                         .postscale = 1.0,
                         .contributors = coll->mesh->size,
                         .device = -1,
                         .tensors = &t,
                         .n = 1,
                         .recv_counts = counts};
    return run(coll, &op, deadline, err);
}
