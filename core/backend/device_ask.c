/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ask: what each rank says of its GPU in an epoch's first operation, and the way for all of
 * them that comes of it. See device.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/device_private.h"
#include "core/base/cleanup.h"
#include "core/base/inject.h"
#include "core/base/log.h"

static bool wants_levels(const struct device *d)
{
    return d->ways.levels == HIER_YES || (d->ways.levels == HIER_UNSET && d->ways.between);
}

/* What this rank has; NCCL is loaded the first time. */
static int say(struct device *d, const struct mesh *mesh, struct said *ret, struct err *err)
{
    int rc = 0;
    memset(ret, 0, sizeof(*ret)); /* it is sent as it is */
    ret->fallback = d->ways.fallback;
    ret->levels = (uint8_t)d->ways.levels;
    if (d->ways.nccl && !d->nccl)
        rc = nccl_run_create(d->gpu, NULL, &d->nccl, err);
    if (rc == 0 && d->nccl && !d->hier && mesh->hosts > 1 && wants_levels(d))
        rc = hier_create(d->gpu, &d->hier, err);
    if (rc == 0 && d->nccl)
        nccl_run_say(d->nccl, &ret->nccl);
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

/* Of NCCL: is there to be one more communicator, inside the hosts? */
static int choose_levels(const struct coll *coll, struct job *j, struct err *err)
{
    struct device *d = j->d;
    const struct mesh *mesh = coll->mesh;
    size_t size = (size_t)mesh->size;
    struct err why = {0};
    auto_free struct nccl_said *said = calloc(size, sizeof(*said));
    auto_free uint8_t *wishes = calloc(size, sizeof(*wishes));
    struct hier_facts facts = {.wishes = wishes,
                               .size = mesh->size,
                               .network = d->ways.between != NULL,
                               .kernels = true,
                               .local_sizes = mesh->local_size_of,
                               .hosts = mesh->hosts};
    if (!said || !wishes)
        return err_set(err, ENOMEM, "no memory for what %zu ranks say", size);
    for (size_t r = 0; r < size; r++) {
        said[r] = j->all[r].local;
        wishes[r] = j->all[r].levels;
        facts.kernels = facts.kernels && j->all[r].nccl.kernels;
    }
    int rc = hier_choose(&facts, &why);
    if (rc < 0)
        return err_set(err, -rc, "%s", why.msg);
    if (rc == 0 && why.msg[0] && mesh->rank == 0 && !d->told_levels) {
        d->told_levels = true;
        if (d->ways.levels == HIER_YES)
            log_warn("%s", why.msg);
        else
            log_info("%s", why.msg);
    }
    d->two_levels = rc == 1;
    if (d->two_levels && hier_hear(d->hier, said, mesh, &why) == NCCL_BAD)
        return err_set(err, ENOMEM, "%s", why.msg);
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
    if (coll->mesh->rank == 0 && d->told != d->way && why.msg[0] && d->way != DEVICE_NONE)
        log_warn("%s%s", why.msg, verdict == NCCL_BAD ? "; through the host's memory instead" : "");
    d->two_levels = false;
    int rc = d->way == DEVICE_NONE   ? refuse(d, &why, err)
             : d->way == DEVICE_NCCL ? choose_levels(coll, j, err)
                                     : 0;
    if (d->hier && !d->two_levels)
        hier_abort(d->hier);
    return rc;
}

void device_tell(const struct coll *coll, struct device *d)
{
    char text[512];
    if (d->told == d->way)
        return;
    d->told = d->way;
    device_describe(d, d->way, text, sizeof(text));
    if (coll->mesh->rank == 0)
        log_info("back end %s: %s", d->way == DEVICE_NCCL ? "nccl" : "staged", text);
}
