/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_form: what a rank reports of itself, the choice that all ranks make from it, and the
 * steps to the communicator of an epoch: the former one kept, shrunk, or a new one. At the end all
 * ranks agree over the host's links, so that none continues alone. See nccl_run.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/nccl_run_private.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/coll/algorithm.h"

#define RANKS_MAX (1 << 20) /* limit for the size of a communicator that another rank reports */

/* ---- this rank's report ---- */

static void say_host(struct nccl_fact *f)
{
    auto_free char *boot = NULL;
    size_t len = 0;
    if (gethostname(f->name, sizeof(f->name) - 1) < 0)
        snprintf(f->name, sizeof(f->name), "a host without a name");
    /* Containers of one machine have the same boot id. */
    if (fd_read_file("/proc/sys/kernel/random/boot_id", 64, &boot, &len) < 0)
        snprintf(f->host, sizeof(f->host), "%s", f->name);
    else
        snprintf(f->host, sizeof(f->host), "%.*s", (int)strcspn(boot, "\n"), boot);
}

static void say_gpu(const struct cuda_device *d, struct nccl_fact *f)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int gpus = 0;
    if (d->api->device_count(&gpus) != CUDA_OK)
        gpus = 1; /* ours */
    f->driver = d->api->version;
    f->gpus = gpus;
    f->sm = d->sm;
    f->hides_gpus = gpus == 0 && visible && (!*visible || strcmp(visible, "-1") == 0);
    if (d->identity.has_uuid)
        memcpy(f->gpu, d->identity.uuid, sizeof(f->gpu));
    else /* unique enough, because it is only compared on this host */
        memcpy(f->gpu, d->identity.pci, sizeof(f->gpu));
}

static void say_nccl(const struct nccl_run *run, struct nccl_fact *f)
{
    if (run->api) {
        f->nccl = run->api->version;
        f->cuda = run->api->cuda;
        snprintf(f->why, sizeof(f->why), "%.399s", run->api->path);
    } else {
        snprintf(f->why, sizeof(f->why), "%.399s", err_text(&run->no_nccl));
    }
}

static struct nccl_survivor say_comm(struct nccl_run *run)
{
    struct nccl_survivor s = {.rank = -1};
    if (!run->comm || nccl_comm_mark(run->comm) == 0)
        return s;
    if (nccl_comm_phase(run->comm) == NCCL_READY)
        nccl_comm_progress(run->comm, NULL); /* reports errors since the last operation */
    s.mark = nccl_comm_mark(run->comm);
    s.rank = run->comm_rank;
    s.ready = nccl_comm_phase(run->comm) == NCCL_READY && !run->given_up &&
              run->doing != RUN_LAUNCHED && run->doing != RUN_BEHIND;
    s.can_shrink = nccl_comm_can_shrink(run->comm);
    return s;
}

void nccl_run_say(struct nccl_run *run, struct nccl_said *ret)
{
    memset(ret, 0, sizeof(*ret)); /* sent as bytes, with its padding */
    run->form.parting = false;    /* it belonged to the former epoch, whose coll may be gone */
    nccl_run_load(run);
    say_host(&ret->fact);
    say_gpu(run->gpu->device, &ret->fact);
    say_nccl(run, &ret->fact);
    ret->survivor = say_comm(run);
    ret->was = run->comm_size;
    ret->kernels = run->gpu->kernels;
}

/* ---- all ranks' reports ---- */

void nccl_run_forget_form(struct nccl_run *run)
{
    struct nccl_form_way *f = &run->form;
    free(f->excluded);
    *f = (struct nccl_form_way){.phase = FORM_NONE};
}

/* Drops what was in progress in the former epoch, whose coll may be gone. */
static void begin_epoch(struct nccl_run *run, int rank, int size)
{
    nccl_run_give_up(run);
    nccl_run_forget_form(run);
    run->heard = false;
    run->rank = rank;
    run->size = size;
}

/* Size of the communicator that another rank reports. */
static int ranks_of(const struct nccl_said *said)
{
    return said->was > 0 && said->was <= RANKS_MAX ? said->was : 0;
}

static int choose(struct nccl_run *run, const struct nccl_said *all, struct err *err)
{
    static const enum nccl_forming ways[] = {
        [NCCL_REFORM_KEEP] = FORM_KEEP,
        [NCCL_REFORM_SHRINK] = FORM_SHRINK,
        [NCCL_REFORM_NEW] = FORM_END,
    };
    struct nccl_form_way *f = &run->form;
    int was = ranks_of(&all[0]);
    auto_free struct nccl_survivor *group = calloc((size_t)run->size, sizeof(*group));
    f->excluded = calloc((size_t)was + 1, sizeof(*f->excluded));
    if (!group || !f->excluded)
        return err_set(err, ENOMEM, "no memory to choose a communicator");
    for (int r = 0; r < run->size; r++)
        group[r] = all[r].survivor;
    f->phase = ways[nccl_reform_choose(group, run->size, was, f->excluded, &f->nexcluded)];
    return 0;
}

static enum nccl_verdict judge(struct nccl_run *run, const struct nccl_said *all, struct err *err)
{
    size_t n = (size_t)run->size;
    char line[1000];
    auto_free struct nccl_fact *facts = calloc(n, sizeof(*facts));
    if (!facts) {
        err_set(err, ENOMEM, "no memory for the reports of %d ranks", run->size);
        return NCCL_BAD;
    }
    run->kernels = true;
    for (size_t r = 0; r < n; r++) {
        facts[r] = all[r].fact;
        facts[r].rank = (int32_t)r;
        run->kernels = run->kernels && all[r].kernels;
    }
    enum nccl_verdict verdict = nccl_facts_judge(facts, run->size, line, sizeof(line));
    if (verdict == NCCL_BAD)
        err_set(err, ENOTSUP, "%s", line);
    else if (!run->comm || choose(run, all, err) < 0)
        verdict = NCCL_BAD;
    else if (verdict == NCCL_WARN && err)
        snprintf(err->msg, sizeof(err->msg), "%s", line);
    return verdict;
}

enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_said *all, int rank,
                                int size, struct err *err)
{
    begin_epoch(run, rank, size);
    enum nccl_verdict verdict = judge(run, all, err);
    run->heard = verdict != NCCL_BAD;
    if (run->comm && (!run->heard || run->form.phase == FORM_END))
        nccl_comm_abort(run->comm);
    return verdict;
}

/* ---- parts of the operation that waits for the communicator ---- */

/* Runs one collective in host memory; returns as coll_progress() does. */
static int part(struct nccl_run *run, const struct coll_op *op, const void *in, void *out, size_t n,
                struct err *err)
{
    struct nccl_form_way *f = &run->form;
    int rc = 0;
    if (!f->parting) {
        f->part = *op;
        f->tensor = (struct coll_tensor){in, out, n};
        f->part.prescale = f->part.postscale = 1;
        f->part.contributors = run->size;
        f->part.device = -1;
        f->part.tensors = &f->tensor;
        f->part.n = 1;
        rc = coll_part_start(f->coll, &f->part, err);
        f->parting = rc == 0;
    }
    if (rc == 0)
        rc = coll_part_progress(f->coll);
    f->parting = rc == 1;
    return rc;
}

int nccl_run_exchange(void *ctx, void *data, size_t n)
{
    static const struct coll_op broadcast = {.kind = HVD_BROADCAST, .dtype = HVD_UINT8};
    const struct nccl_ground *ground = ctx;
    struct nccl_form_way *f = &ground->run->form;
    if (f->phase != FORM_MAKING)
        return -ECANCELED;
    return part(ground->run, &broadcast, data, data, n, NULL);
}

/* ---- one function for each phase: 1: wait, 0: continue with the phase that is set, -errno ---- */

static int ask_others(struct nccl_run *run, int rc, const struct err *why)
{
    struct nccl_form_way *f = &run->form;
    f->good = rc == 0;
    if (rc < 0)
        f->why = *why;
    f->phase = FORM_AGREE;
    /* Another rank's time limit may begin when this rank's has ended. */
    f->deadline = deadline_in_ms(2 * (uint64_t)run->limits.init_ms);
    return 0;
}

static int form_none(struct nccl_run *run, struct err *err)
{
    return nccl_run_none(run, err);
}

static int form_keep(struct nccl_run *run, struct err *err)
{
    struct err why = {0};
    int rc = nccl_comm_progress(run->comm, &why);
    return rc == 1 ? 1 : ask_others(run, rc, &why);
}

static int form_shrink(struct nccl_run *run, struct err *err)
{
    struct nccl_form_way *f = &run->form;
    struct err why = {0};
    int rc = nccl_comm_shrink(run->comm, f->excluded, f->nexcluded, &why);
    run->comm_rank = run->rank;
    run->comm_size = run->size;
    f->phase = FORM_SHRINKING;
    return rc < 0 ? ask_others(run, rc, &why) : 0;
}

static int form_end(struct nccl_run *run, struct err *err)
{
    nccl_comm_abort(run->comm);
    run->form.phase = FORM_ENDING;
    return 0;
}

static int form_ending(struct nccl_run *run, struct err *err)
{
    enum nccl_phase phase = nccl_comm_phase(run->comm);
    if (phase == NCCL_ABORT) {
        nccl_comm_progress(run->comm, NULL);
        phase = nccl_comm_phase(run->comm);
    }
    if (phase == NCCL_ABORT)
        return 1;
    run->comm_rank = run->rank;
    run->comm_size = run->size;
    run->form.phase = FORM_MAKING;
    return nccl_comm_start(run->comm, run->rank, run->size, err);
}

/* A rank that has failed cannot take part in agreeing: the other ranks may still wait for it in
 * NCCL. They learn of it over the host's links. */
static int form_making(struct nccl_run *run, struct err *err)
{
    struct err why = {0};
    int rc = nccl_comm_progress(run->comm, &why);
    if (rc == 1)
        return 1;
    run->form.made = rc == 0;
    return rc < 0 ? err_set(err, -rc, "%s", why.msg) : ask_others(run, 0, &why);
}

static int form_agree(struct nccl_run *run, struct err *err)
{
    static const struct coll_op least = {.kind = HVD_ALLREDUCE, .dtype = HVD_INT32, .op = HVD_MIN};
    struct nccl_form_way *f = &run->form;
    int rc = part(run, &least, &f->good, &f->good, 1, err);
    if (rc == 1 && deadline_passed(f->deadline) && f->why.code)
        return err_set(err, -f->why.code, "%s", f->why.msg);
    if (rc == 1 && deadline_passed(f->deadline))
        return err_set(err, ETIMEDOUT,
                       "rank %d waited %u s for the other ranks to say that NCCL is ready there",
                       run->rank, 2 * run->limits.init_ms / 1000);
    if (rc != 0)
        return rc;
    if (f->good) {
        f->phase = FORM_CLEAR;
        return 0;
    }
    log_info("NCCL: a new communicator, because the former one cannot be used: %s",
             f->why.code ? f->why.msg : "another rank cannot use it");
    f->why = (struct err){0};
    f->phase = FORM_END;
    return 0;
}

static int form_clear(struct nccl_run *run, struct err *err)
{
    const struct nccl_form_way *f = &run->form;
    int rc = run->given_up ? nccl_run_drained(run, err) : 0;
    if (rc != 0)
        return rc;
    log_debug("NCCL: the communicator of %d ranks is %s", run->size,
              f->made        ? "new"
              : f->nexcluded ? "the former one, made smaller"
                             : "the former one");
    run->form.phase = FORM_READY;
    return 0;
}

static int form_ready(struct nccl_run *run, struct err *err)
{
    return 0;
}

static int (*const form_phases[FORM_PHASES])(struct nccl_run *run, struct err *err) = {
    [FORM_NONE] = form_none,      [FORM_KEEP] = form_keep,   [FORM_SHRINK] = form_shrink,
    [FORM_SHRINKING] = form_keep, [FORM_END] = form_end,     [FORM_ENDING] = form_ending,
    [FORM_MAKING] = form_making,  [FORM_AGREE] = form_agree, [FORM_CLEAR] = form_clear,
    [FORM_READY] = form_ready,
};

int nccl_run_form(struct nccl_run *run, struct coll *coll, struct err *err)
{
    struct nccl_form_way *f = &run->form;
    int rc;
    f->coll = coll;
    do {
        rc = form_phases[f->phase](run, err);
    } while (rc == 0 && f->phase != FORM_READY);
    if (rc >= 0)
        return rc;
    if (f->parting)
        coll_part_cancel(coll);
    f->parting = false;
    f->phase = FORM_NONE;
    if (run->comm)
        nccl_comm_abort(run->comm);
    return rc;
}
