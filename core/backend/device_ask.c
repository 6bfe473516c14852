/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ask: the phase ask in an epoch's first operation: what each rank reports of its GPU, and
 * the choice of the way for all ranks. See device.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/device_private.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"

#define LEAVE_MS 10000 /* time for a rank that does not fit to leave */

/* Collects what this rank reports; loads NCCL the first time. */
static int say(struct device *d, int rank, struct said *ret, struct err *err)
{
    int rc = 0;
    memset(ret, 0, sizeof(*ret)); /* it is sent as bytes: no uninitialized padding */
    ret->fallback = d->ways.fallback;
    ret->newcomer = d->newcomer;
    if (d->ways.nccl && !d->nccl)
        rc = nccl_run_create(d->gpu, NULL, &d->nccl, err);
    if (rc == 0 && d->nccl)
        nccl_run_say(d->nccl, rank, &ret->nccl);
    return rc;
}

int device_ask(struct coll *coll, struct job *j, struct err *err)
{
    size_t size = (size_t)coll->mesh->size;
    inject_point("ask");
    int rc = say(j->d, coll->mesh->rank, &j->mine, err);
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
        return err_set(err, ENOTSUP, "HVD_BACKEND excludes every way for tensors of a GPU");
    return err_set(
        err, ENOTSUP,
        "%s; HVD_GPU_FALLBACK=1 would let tensors go through the host's memory, which is "
        "slower",
        why->msg);
}

/* Joiners that do not fit leave; the other ranks keep their setup and continue. */
static int part(const struct coll *coll, struct job *j, const bool *unfit, const struct err *why,
                struct err *err)
{
    int size = coll->mesh->size, me = coll->mesh->rank, first = 0;
    if (unfit[me])
        return err_set(err, EXDEV, "rank %d does not fit the ranks that it has joined: %s", me,
                       why->msg);
    j->give_up = deadline_in_ms(LEAVE_MS);
    for (j->unfit = 0; !unfit[j->unfit];)
        j->unfit++;
    while (first < size && unfit[first])
        first++;
    if (me == first)
        log_warn("rank %d has joined but does not fit: the other ranks continue without it: %s",
                 j->unfit, why->msg);
    return 0;
}

static int choose_way(const struct coll *coll, struct job *j, struct err *err)
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
        auto_free struct nccl_fact *facts = calloc((size_t)size, sizeof(*facts));
        if (!facts)
            return err_set(err, ENOMEM, "no memory for the reports of %d ranks", size);
        for (int r = 0; r < size; r++)
            facts[r] = j->all[r].nccl;
        verdict = nccl_run_hear(d->nccl, facts, coll->mesh->rank, size, &why);
    }
    d->way = verdict != NCCL_BAD ? DEVICE_NCCL : j->staged_too ? DEVICE_STAGED : DEVICE_NONE;
    if (coll->mesh->rank == 0 && d->told != d->way && why.msg[0] && d->way != DEVICE_NONE)
        log_warn("%s%s", why.msg, verdict == NCCL_BAD ? "; through the host's memory instead" : "");
    return d->way == DEVICE_NONE ? refuse(d, &why, err) : 0;
}

int device_choose(const struct coll *coll, struct job *j, struct err *err)
{
    int size = coll->mesh->size;
    struct err why = {0};
    auto_free bool *unfit = calloc((size_t)size, sizeof(*unfit));
    if (!unfit)
        return err_set(err, ENOMEM, "no memory for the reports of %d ranks", size);
    int n = device_fit(&j->d->ways, j->all, size, coll->mesh->rank, unfit, &why);
    if (n < 0)
        return err_set(err, -n, "%s", why.msg);
    if (n > 0)
        return part(coll, j, unfit, &why, err);
    int rc = choose_way(coll, j, err);
    j->d->newcomer = j->d->newcomer && rc < 0;
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
