/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_rank: see coll_rank.h.
 */
#include "tests/harness/coll_rank.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"

static int open_mesh(struct coll_rank *r, struct err *err)
{
    uint64_t deadline = deadline_in_ms(60000);
    struct mesh_listener *listener = NULL;
    struct buf card = {0};
    int rc = boot_open(&r->boot, err);
    if (rc < 0)
        return rc;
    rc = mesh_listen(&r->boot, &listener, &card, err);
    if (rc == 0)
        rc = boot_exchange(&r->boot, &card, deadline, err);
    buf_fini(&card);
    if (rc < 0) {
        mesh_listener_destroy(listener);
        return rc;
    }
    return mesh_create(&r->boot, listener, deadline, &r->mesh, err);
}

int coll_rank_open(struct coll_rank *r, int rank, const char *hosts)
{
    memset(r, 0, sizeof(*r));
    r->boot.agent_fd = -1;
    if (hosts) {
        char word[2] = {hosts[rank], 0};
        setenv("HVD_LOCALITY", word, 1);
    }
    struct err err = {0};
    int rc = open_mesh(r, &err);
    if (rc == 0)
        rc = coll_create(r->mesh, &r->coll, &err);
    if (rc < 0) {
        printf("rank %d: %s\n", rank, err_text(&err));
        coll_rank_close(r);
    }
    return rc;
}

void coll_rank_close(struct coll_rank *r)
{
    uint64_t deadline = deadline_in_ms(5000);
    coll_destroy(r->coll);
    r->coll = NULL;
    if (r->mesh) {
        mesh_goodbye(r->mesh);
        while (!mesh_all_left(r->mesh) && !deadline_passed(deadline)) {
            if (mesh_progress(r->mesh, NULL, NULL) < 0)
                break;
            if (!mesh_all_left(r->mesh))
                coll_rank_wait(r, deadline);
        }
    }
    mesh_destroy(r->mesh);
    boot_fini(&r->boot);
    r->mesh = NULL;
}

int coll_rank_wait(struct coll_rank *r, uint64_t deadline)
{
    struct err err = {0};
    int fd = mesh_fd(r->mesh);
    int ms = deadline_poll_ms(deadline);
    mesh_sleep_begin(r->mesh);
    int rc = r->coll ? coll_progress(r->coll) : 1;
    if (rc == 1) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int most = coll_wait(r->coll) ? 0 : 50;
        poll(&p, fd >= 0, fd < 0 || ms > most ? most : ms);
    }
    mesh_sleep_end(r->mesh);
    if (rc != 1)
        return rc;
    rc = mesh_progress(r->mesh, NULL, &err);
    if (rc < 0 && !r->quiet)
        printf("rank %d: %s\n", r->mesh->rank, err_text(&err));
    return rc < 0 ? rc : 1;
}

int coll_rank_run(struct coll_rank *r, const struct coll_op *op)
{
    struct err err = {0};
    uint64_t deadline = deadline_in_ms(60000);
    int rc = coll_start(r->coll, op, &err);
    if (rc < 0) {
        printf("rank %d: %s\n", r->mesh->rank, err_text(&err));
        return rc;
    }
    while ((rc = coll_progress(r->coll)) == 1) {
        if (deadline_passed(deadline)) {
            printf("rank %d: %s of kind %d hangs\n", r->mesh->rank, coll_algorithm(r->coll),
                   (int)op->kind);
            return -ETIMEDOUT;
        }
        rc = coll_rank_wait(r, deadline);
        if (rc <= 0)
            break;
    }
    if (rc < 0 && !r->quiet)
        printf("rank %d: %s: %s\n", r->mesh->rank, coll_algorithm(r->coll), strerror(-rc));
    return rc;
}

struct coll_op coll_rank_op(struct coll_rank *r, enum hvd_kind kind, enum hvd_dtype dtype,
                            enum hvd_op op, const struct coll_tensor *tensors, size_t n)
{
    return (struct coll_op){
        .kind = kind,
        .dtype = dtype,
        .op = op,
        .prescale = 1.0,
        .postscale = 1.0,
        .contributors = r->mesh->size,
        .device = -1,
        .tensors = tensors,
        .n = n,
    };
}

int coll_rank_sum(struct coll_rank *r, size_t count)
{
    auto_free float *x = calloc(count, sizeof(*x));
    if (!x)
        return -ENOMEM;
    x[count - 1] = 1;
    struct coll_tensor t = {x, x, count};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t, 1);
    int rc = coll_rank_run(r, &op);
    return rc == 0 && x[count - 1] != (float)r->mesh->size ? -EBADMSG : rc;
}
