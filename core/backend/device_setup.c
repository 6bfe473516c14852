/* SPDX-License-Identifier: Apache-2.0
 *
 * device_setup: the setup of an epoch (device.h) as an algorithm of coll's, for a barrier on a
 * device: every rank waits for its GPU and reports what it has, all choose the same way from that,
 * and the communicator is created. No rank ends it before all ranks can use the way.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/device_private.h"
#include "core/backend/gpu.h"
#include "core/backend/staged.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/log.h"

#define LEAVE_MS 10000  /* time for a rank that does not fit to leave */
#define MEET_MS  120000 /* another rank's limit for its communicator may begin when ours ends */

enum phase {
    CLEAN, /* until this rank's GPU has nothing left of the epoch before */
    SAY,   /* until this rank has what it reports */
    ASK,   /* all ranks get all reports */
    FORM,  /* until this rank has NCCL's communicator, if that is the way */
    MEET,  /* until all have it */
};

struct setup {
    struct device *d;
    enum phase phase;
    struct nccl_fact mine, *all; /* [size] */
    size_t *counts;              /* [size], behind all */
    struct coll_tensor tensor;
    struct coll_op part;
    int unfit;        /* a rank that has to leave; -1: none */
    uint64_t give_up; /* when that rank is taken as lost; MEET: when the others come too late */
    bool refused;     /* all ranks have failed to find a way */
};

/* ---- which joiners fit: pure ----------------------------------------------------------------- */

/* The ranks that were there before, and joiners that fit them. */
struct crew {
    const struct device_ways *ways;
    struct nccl_fact *facts; /* [n] of them */
    int n;
    bool fallback, kernels; /* all of them allow the host's memory; all of them have kernels */
};

static bool can_use_nccl(const struct crew *c, struct err *ret_why)
{
    return nccl_facts_judge(c->facts, c->n, ret_why) != NCCL_BAD;
}

static enum device_way way_of(const struct crew *c)
{
    struct err why;
    if (c->ways->nccl && can_use_nccl(c, &why))
        return DEVICE_NCCL;
    return c->ways->staged || c->fallback ? DEVICE_STAGED : DEVICE_NONE;
}

/* Returns whether a joiner fits, and adds it to the crew if so. */
static bool take(struct crew *c, enum device_way way, const struct nccl_fact *joiner,
                 struct err *ret_why)
{
    c->facts[c->n++] = *joiner;
    if (way == DEVICE_STAGED && !c->ways->staged && !joiner->fallback)
        err_set(ret_why, ENOTSUP,
                "the other ranks' tensors go through the host's memory, which it does not allow: "
                "set HVD_GPU_FALLBACK=1");
    else if (way == DEVICE_NCCL && c->kernels && !joiner->kernels)
        err_set(ret_why, ENOTSUP,
                "it lacks hvd's kernels for GPUs, which the other ranks have: set HVD_KERNELS to "
                "the file hvd_kernels.fatbin");
    else if (way == DEVICE_STAGED || can_use_nccl(c, ret_why))
        return true;
    c->n--;
    return false;
}

int device_fit(const struct device_ways *ways, const struct nccl_fact *all, int size, int me,
               bool *ret_unfit, struct err *ret_why)
{
    int n = 0;
    auto_free struct nccl_fact *facts = calloc((size_t)size, sizeof(*facts));
    struct crew c = {.ways = ways, .facts = facts, .fallback = true, .kernels = true};
    if (!facts)
        return err_set(ret_why, ENOMEM, "no memory for the reports of %d ranks", size);
    for (int r = 0; r < size; r++) {
        if (all[r].newcomer)
            continue;
        c.facts[c.n++] = all[r];
        c.fallback = c.fallback && all[r].fallback;
        c.kernels = c.kernels && all[r].kernels;
    }
    enum device_way way = c.n > 0 && c.n < size ? way_of(&c) : DEVICE_NONE;
    for (int r = 0; r < size && way != DEVICE_NONE; r++) {
        struct err why = {0};
        if (!all[r].newcomer || take(&c, way, &all[r], &why))
            continue;
        ret_unfit[r] = true;
        if (n++ == 0 || r == me)
            *ret_why = why;
    }
    return n;
}

/* ---- choose --------------------------------------------------------------------------------- */

/* Joiners that do not fit leave; the other ranks wait for that. */
static int part(const struct coll *coll, struct setup *s, const bool *unfit, const struct err *why,
                struct err *err)
{
    int size = coll->mesh->size, me = coll->mesh->rank, first = 0;
    if (unfit[me])
        return err_set(err, EXDEV, "rank %d does not fit the ranks that it has joined: %s", me,
                       why->msg);
    s->give_up = deadline_in_ms(LEAVE_MS);
    for (s->unfit = 0; !unfit[s->unfit];)
        s->unfit++;
    while (first < size && unfit[first])
        first++;
    if (me == first)
        log_warn("rank %d has joined but does not fit: the other ranks continue without it: %s",
                 s->unfit, why->msg);
    return 0;
}

static int choose_way(const struct coll *coll, struct setup *s, struct err *err)
{
    struct device *d = s->d;
    int size = coll->mesh->size;
    struct err why = {0};
    bool all_allow = true;
    for (int r = 0; r < size; r++)
        all_allow = all_allow && s->all[r].fallback;
    d->staged_too = d->ways.staged || all_allow || size == 1;
    enum nccl_verdict verdict = NCCL_BAD;
    if (d->nccl)
        verdict = nccl_run_hear(d->nccl, s->all, coll->mesh->rank, size, &why);
    d->way = verdict != NCCL_BAD ? DEVICE_NCCL : d->staged_too ? DEVICE_STAGED : DEVICE_NONE;
    if (coll->mesh->rank == 0 && d->told != d->way && why.msg[0] && d->way != DEVICE_NONE)
        log_warn("%s%s", why.msg, verdict == NCCL_BAD ? "; through the host's memory instead" : "");
    if (d->way != DEVICE_NONE)
        return 0;
    if (!d->ways.nccl)
        return err_set(err, ENOTSUP, "HVD_BACKEND excludes every way for tensors of a GPU");
    return err_set(err, ENOTSUP, "%s" FALLBACK, why.msg);
}

/* -ENOTSUP: there is no way, on any rank. -EXDEV: this rank has joined and does not fit. */
static int choose(const struct coll *coll, struct setup *s, struct err *err)
{
    int size = coll->mesh->size;
    struct err why = {0};
    auto_free bool *unfit = calloc((size_t)size, sizeof(*unfit));
    if (!unfit)
        return err_set(err, ENOMEM, "no memory for the reports of %d ranks", size);
    int n = device_fit(&s->d->ways, s->all, size, coll->mesh->rank, unfit, &why);
    if (n < 0)
        return err_set(err, -n, "%s", why.msg);
    if (n > 0)
        return part(coll, s, unfit, &why, err);
    int rc = choose_way(coll, s, err);
    s->d->newcomer = s->d->newcomer && rc < 0;
    s->refused = rc == -ENOTSUP;
    return rc;
}

/* ---- the phases: 1: in progress, 0: the next phase ------------------------------------------- */

/* Inputs are copied back, too. The program's own work on the GPU may come first, so this may take
 * as long as a step of the program: the other ranks wait where they have no limit, in ASK. */
static int clean(struct coll *coll, struct setup *s, struct err *err)
{
    int rc = s->d->trouble.code;
    if (rc == 0)
        rc = device_restore(s->d, err);
    return device_excuse(s->d, coll->mesh, rc, err);
}

/* Collects what this rank reports; loads NCCL the first time. */
static int say(struct coll *coll, struct setup *s, struct err *err)
{
    struct device *d = s->d;
    size_t size = (size_t)coll->mesh->size;
    int rc = 0;
    if (d->ways.nccl && !d->nccl)
        rc = nccl_run_create(d->gpu, NULL, &d->nccl, err);
    if (rc == 0 && d->nccl)
        rc = nccl_run_say(d->nccl, coll->mesh->rank, coll->mesh->size, &s->mine);
    if (rc != 0)
        return rc;
    inject_point("ask");
    s->mine.fallback = d->ways.fallback;
    s->mine.newcomer = d->newcomer;
    free(s->all);
    s->all = calloc(size, sizeof(*s->all) + sizeof(*s->counts));
    if (!s->all)
        return err_set(err, ENOMEM, "no memory to ask %zu ranks", size);
    s->counts = (size_t *)(void *)(s->all + size);
    for (size_t r = 0; r < size; r++)
        s->counts[r] = sizeof(s->mine);
    s->tensor = (struct coll_tensor){&s->mine, s->all, sizeof(s->mine)};
    s->part = coll_barrier;
    s->part.kind = HVD_ALLGATHER;
    s->part.dtype = HVD_UINT8;
    s->part.tensors = &s->tensor;
    s->part.n = 1;
    s->part.recv_counts = s->counts;
    return coll_part_start(coll, &s->part, err);
}

static int ask(struct coll *coll, struct setup *s, struct err *err)
{
    int rc = coll_part_progress(coll);
    if (rc < 0)
        err_sys(err, -rc, "the gathering of what the ranks' GPUs can do");
    return rc == 0 ? choose(coll, s, err) : rc;
}

/* A rank that does not fit has the same information, and leaves; the other ranks wait until it is
 * lost. */
static int await_loss(struct coll *coll, struct setup *s)
{
    if (deadline_passed(s->give_up)) {
        mesh_lost(coll->mesh, s->unfit, "it does not fit the other ranks, and did not leave");
        s->give_up = UINT64_MAX;
    }
    return 1;
}

/* A rank that fails here does not go on to meet the others, which may still wait for it in NCCL.
 * They learn of it over the host's links. */
static int form(struct coll *coll, struct setup *s, struct err *err)
{
    struct device *d = s->d;
    if (s->unfit >= 0)
        return await_loss(coll, s);
    int rc = d->trouble.code;
    if (rc == 0 && d->way == DEVICE_NCCL)
        rc = nccl_run_form(d->nccl, err);
    rc = device_excuse(d, coll->mesh, rc, err);
    if (rc != 0)
        return rc;
    s->give_up = deadline_in_ms(MEET_MS);
    s->part = coll_barrier;
    return coll_part_start(coll, &s->part, err);
}

static void tell(const struct coll *coll, struct device *d)
{
    char text[512];
    if (d->told == d->way)
        return;
    d->told = d->way;
    device_describe(d, text, sizeof(text));
    if (coll->mesh->rank == 0)
        log_info("back end %s: %s", d->way == DEVICE_NCCL ? "nccl" : "staged", text);
}

static int meet(struct coll *coll, struct setup *s, struct err *err)
{
    int rc = coll_part_progress(coll);
    if (rc < 0)
        return err_sys(err, -rc, "the barrier after the setup of the ranks' GPUs");
    if (rc == 1 && deadline_passed(s->give_up)) {
        coll_part_cancel(coll);
        return err_set(err, ETIMEDOUT,
                       "rank %d waited %d s for the other ranks to say that their GPUs are ready",
                       coll->mesh->rank, MEET_MS / 1000);
    }
    if (rc == 0) {
        s->d->ready = true;
        tell(coll, s->d);
    }
    return rc;
}

static int work(struct coll *coll, struct setup *s, struct err *err)
{
    static int (*const phases[])(struct coll * coll, struct setup * s, struct err * err) = {
        [CLEAN] = clean, [SAY] = say, [ASK] = ask, [FORM] = form, [MEET] = meet};
    for (;;) {
        int rc = phases[s->phase](coll, s, err);
        if (rc == 1 && s->phase != ASK && s->phase != MEET)
            coll->wait = COLL_ASKS; /* no message will wake this rank */
        if (rc != 0 || s->phase++ == MEET)
            return rc;
    }
}

/* ---- the algorithm -------------------------------------------------------------------------- */

static bool applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->device >= 0 && op->kind == HVD_BARRIER;
}

static int init(struct coll *coll, void *state, struct err *err)
{
    ((struct setup *)state)->d = coll->backend;
    return 0;
}

static void fini(void *state)
{
    free(((struct setup *)state)->all);
}

static int start(struct coll *coll, void *state, struct err *err)
{
    struct setup *s = state;
    auto_visit visit = {0};
    s->phase = CLEAN;
    s->unfit = -1;
    s->refused = false;
    s->d->trouble.code = 0;
    memset(&s->mine, 0, sizeof(s->mine)); /* it is sent as bytes: no uninitialized padding */
    int rc = device_enter(coll, s->d, &visit, err);
    if (rc == 0 && s->d->nccl)
        nccl_run_abort(s->d->nccl);
    return rc;
}

static int progress(struct coll *coll, void *state)
{
    struct setup *s = state;
    auto_visit visit = {0};
    struct err err = {0};
    int rc = cuda_enter(s->d->gpu->device, &visit, &err);
    if (rc == 0)
        rc = work(coll, s, &err);
    return device_result(coll, s->d, rc, !s->refused, &err);
}

static void cancel(struct coll *coll, void *state)
{
    coll_part_cancel(coll);
}

const struct algorithm device_setup = {
    .name = "gpu_setup",
    .state_size = sizeof(struct setup),
    .applies = applies,
    .init = init,
    .fini = fini,
    .start = start,
    .progress = progress,
    .cancel = cancel,
    .stop = cancel,
};
