/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ask: what each rank says of its GPU in an epoch's first operation, and the way for all of
 * them that comes of it. See device.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/device_private.h"
#include "core/backend/nccl_net.h"
#include "core/base/cleanup.h"
#include "core/base/inject.h"
#include "core/base/log.h"

/* What this rank has; NCCL is loaded the first time. */
static int say(struct device *d, const struct mesh *mesh, struct said *ret, struct err *err)
{
    enum hier_wish levels = d->ways.levels;
    int rc = 0;
    memset(ret, 0, sizeof(*ret)); /* it is sent as it is */
    ret->fallback = d->ways.fallback;
    ret->levels = (uint8_t)levels;
    ret->used = (uint8_t)d->used;
    if (d->ways.nccl && !d->nccl)
        rc = nccl_run_create(d->gpu, NULL, &d->nccl, err);
    if (rc == 0 && d->nccl)
        nccl_run_say(d->nccl, &ret->nccl);
    ret->sockets = mesh->hosts > 1 && nccl_net_is_sockets(NCCL_NET_PORTS);
    bool wanted = levels == HIER_YES || (levels == HIER_UNSET && ret->sockets);
    if (rc == 0 && d->nccl && !d->hier && mesh->hosts > 1 && wanted)
        rc = hier_create(d->gpu, &d->hier, err);
    if (rc == 0 && d->hier)
        hier_say(d->hier, &ret->local);
    return rc;
}

int device_ask(struct coll *coll, struct job *j, struct err *err)
{
    size_t size = (size_t)coll->mesh->size;
    inject_point("ask");
    int rc = say(j->d, coll->mesh, &j->mine, err);
    free(j->all);
    free(j->counts);
    j->all = calloc(size, sizeof(*j->all));
    j->counts = calloc(size, sizeof(*j->counts));
    if (rc == 0 && (!j->all || !j->counts))
        rc = err_set(err, ENOMEM, "no memory to ask %zu ranks", size);
    if (rc < 0)
        return rc;
    for (size_t r = 0; r < size; r++)
        j->counts[r] = sizeof(j->mine);
    j->tensor = (struct coll_tensor){&j->mine, j->all, sizeof(j->mine)};
    j->part = (struct coll_op){.kind = HVD_ALLGATHER,
                               .dtype = HVD_UINT8,
                               .prescale = 1.0,
                               .postscale = 1.0,
                               .contributors = coll->mesh->size,
                               .device = -1,
                               .tensors = &j->tensor,
                               .n = 1,
                               .recv_counts = j->counts};
    return coll_part_start(coll, &j->part, err);
}

static int refuse(const struct device *d, const struct err *why, struct err *err)
{
    if (!d->ways.nccl)
        return err_set(err, ENOTSUP, "HVD_BACKEND leaves no way for tensors of a GPU");
    return err_set(
        err, ENOTSUP,
        "%s; HVD_GPU_FALLBACK=1 would let tensors go through the host's memory, which is "
        "slower",
        why->msg);
}

/* Those who have worked together until now fit; it is who has come to them that does not. */
static int no_way(const struct coll *coll, struct job *j, const struct err *why, struct err *err)
{
    int size = coll->mesh->size, first = 0, rc = refuse(j->d, why, err);
    bool came = false;
    while (first < size && j->all[first].used == DEVICE_NONE)
        first++;
    for (int r = 0; r < size; r++)
        came = came || j->all[r].used == DEVICE_NONE;
    if (first == size || !came)
        return rc;
    if (j->mine.used == DEVICE_NONE) {
        err_prefix(err, "rank %d does not fit the ranks that it has joined", coll->mesh->rank);
        return err->code = -EXDEV;
    }
    if (coll->mesh->rank == first)
        log_warn("the ranks that were here go on without who has come: %s", why->msg);
    device_wait_for_loss(j, err);
    return 0;
}

static int hear_levels(struct device *d, const struct job *j, const struct mesh *mesh,
                       struct err *ret_why)
{
    auto_free struct nccl_said *said = calloc((size_t)mesh->size, sizeof(*said));
    if (!said)
        return err_set(ret_why, ENOMEM, "no memory for what %d ranks say", mesh->size);
    for (int r = 0; r < mesh->size; r++)
        said[r] = j->all[r].local;
    if (hier_hear(d->hier, said, mesh, ret_why) != NCCL_BAD)
        return 1;
    return ret_why->code == -ENOMEM ? -ENOMEM : 0;
}

/* As it changes. */
static void tell_levels(struct device *d, const struct mesh *mesh, const char *why)
{
    bool asked = d->ways.levels == HIER_YES, first = d->told_levels < 0;
    if (d->told_levels == d->two_levels || (first && !asked && !d->two_levels))
        return;
    d->told_levels = d->two_levels;
    if (mesh->rank != 0)
        return;
    if (d->two_levels)
        log_info("allreduce on GPUs: NCCL inside the %d hosts, TCP between them: %s", mesh->hosts,
                 why);
    else if (asked)
        log_warn("allreduce on GPUs: NCCL over all ranks: %s", why);
    else
        log_info("allreduce on GPUs: NCCL over all ranks: %s", why);
}

/* Of NCCL: is there to be one more communicator, inside the hosts? The same on every rank. */
static int choose_levels(const struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    const struct mesh *mesh = coll->mesh;
    struct err why = {0};
    auto_free uint8_t *wishes = calloc((size_t)mesh->size, sizeof(*wishes));
    struct hier_facts facts = {.wishes = wishes,
                               .size = mesh->size,
                               .sockets = true,
                               .kernels = true,
                               .local_sizes = mesh->local_size_of,
                               .hosts = mesh->hosts};
    if (!wishes)
        return err_set(err, ENOMEM, "no memory for what %d ranks say", mesh->size);
    for (int r = 0; r < mesh->size; r++) {
        wishes[r] = j->all[r].levels;
        facts.sockets = facts.sockets && j->all[r].sockets;
        facts.kernels = facts.kernels && j->all[r].nccl.kernels;
    }
    int rc = hier_choose(&facts, &why);
    struct err words = why;
    if (rc == 1)
        rc = hear_levels(d, j, mesh, &why);
    if (rc < 0) {
        *err = why;
        return rc;
    }
    d->two_levels = rc == 1;
    tell_levels(d, mesh, rc == 1 ? words.msg : why.msg);
    return 0;
}

int device_choose(const struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    int size = coll->mesh->size;
    struct err why = {0};
    bool all_allow = true;
    for (int r = 0; r < size; r++)
        all_allow = all_allow && j->all[r].fallback;
    j->staged_too = d->ways.staged || all_allow || size == 1;
    enum nccl_verdict verdict = NCCL_BAD;
    if (d->nccl) {
        struct nccl_said *said = calloc((size_t)size, sizeof(*said));
        if (!said)
            return err_set(err, ENOMEM, "no memory for what %d ranks say", size);
        for (int r = 0; r < size; r++)
            said[r] = j->all[r].nccl;
        verdict = nccl_run_hear(d->nccl, said, coll->mesh->rank, size, NULL, &why);
        free(said);
        if (why.code == -ENOMEM) { /* here only: the others choose without it */
            *err = why;
            return -ENOMEM;
        }
    }
    d->way = verdict != NCCL_BAD ? DEVICE_NCCL : j->staged_too ? DEVICE_STAGED : DEVICE_NONE;
    if (coll->mesh->rank == 0 && d->used != d->way && why.msg[0] && d->way != DEVICE_NONE)
        log_warn("%s%s", why.msg, verdict == NCCL_BAD ? "; through the host's memory instead" : "");
    d->two_levels = false;
    int rc = d->way == DEVICE_NONE   ? no_way(coll, j, &why, err)
             : d->way == DEVICE_NCCL ? choose_levels(coll, j, err)
                                     : 0;
    if (d->hier && !d->two_levels)
        hier_abort(d->hier);
    return rc;
}

void device_tell(const struct coll *coll, struct device *d)
{
    char text[512];
    if (d->used == d->way)
        return;
    d->used = d->way;
    device_describe(d, d->way, text, sizeof(text));
    if (coll->mesh->rank == 0)
        log_info("back end %s: %s", d->way == DEVICE_NCCL ? "nccl" : "staged", text);
}
