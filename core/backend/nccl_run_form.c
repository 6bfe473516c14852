/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_form: what a rank reports of itself, the verdict on all reports, and the steps to the
 * communicator of an epoch: the former one is aborted, a new one created. At the end all ranks meet
 * over the host's links, so that none continues alone. See nccl_run.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/nccl_run_private.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/coll/algorithm.h"

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

void nccl_run_say(struct nccl_run *run, int rank, struct nccl_fact *ret)
{
    memset(ret, 0, sizeof(*ret)); /* sent as bytes, with its padding */
    run->form.parting = false;    /* it belonged to the former epoch, whose coll may be gone */
    nccl_run_load(run);
    ret->rank = rank;
    say_host(ret);
    say_gpu(run->gpu->device, ret);
    say_nccl(run, ret);
    ret->kernels = run->gpu->kernels;
}

enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *err)
{
    char line[1000];
    /* A call that is still in progress belongs to the former epoch, whose struct coll may have been
     * freed. */
    nccl_run_abort(run);
    run->rank = rank;
    run->size = size;
    run->kernels = true;
    for (int r = 0; r < size; r++)
        run->kernels = run->kernels && all[r].kernels;
    enum nccl_verdict verdict = nccl_facts_judge(all, size, line, sizeof(line));
    if (verdict == NCCL_BAD)
        err_set(err, ENOTSUP, "%s", line);
    else if (verdict == NCCL_WARN && err)
        snprintf(err->msg, sizeof(err->msg), "%s", line);
    run->heard = verdict != NCCL_BAD;
    run->form.phase = run->heard ? FORM_ENDING : FORM_NONE;
    return verdict;
}

/* ---- parts of the operation that waits for the communicator ---- */

/* Runs one collective in host memory; returns as coll_progress() does. */
static int part(struct nccl_run *run, const struct coll_op *op, struct err *err)
{
    struct nccl_form_way *f = &run->form;
    int rc = 0;
    if (!f->parting) {
        f->part = *op;
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
    const struct nccl_ground *ground = ctx;
    struct nccl_form_way *f = &ground->run->form;
    if (f->phase != FORM_MAKING)
        return -ECANCELED;
    f->tensor = (struct coll_tensor){data, data, n};
    return part(ground->run,
                &(struct coll_op){.kind = HVD_BROADCAST,
                                  .dtype = HVD_UINT8,
                                  .prescale = 1,
                                  .postscale = 1,
                                  .contributors = ground->run->size,
                                  .device = -1,
                                  .tensors = &f->tensor,
                                  .n = 1},
                NULL);
}

/* ---- one function for each phase: 1: wait, 0: continue with the phase that is set, -errno ---- */

static int form_none(struct nccl_run *run, struct err *err)
{
    return nccl_run_none(run, err);
}

/* The former communicator is being aborted. */
static int form_ending(struct nccl_run *run, struct err *err)
{
    if (nccl_run_aborting(run))
        return 1;
    run->form.phase = FORM_MAKING;
    return nccl_comm_start(run->comm, run->rank, run->size, err);
}

/* A rank that has failed returns its error, and does not go on to meet the others, which may still
 * wait for it in NCCL. They learn of it over the host's links. */
static int form_making(struct nccl_run *run, struct err *err)
{
    int rc = nccl_comm_progress(run->comm, err);
    if (rc != 0)
        return rc;
    run->form.phase = FORM_MEETING;
    /* Another rank's time limit may begin when this rank's has ended. */
    run->form.deadline = deadline_in_ms(2 * (uint64_t)run->limits.init_ms);
    return 0;
}

static int form_meeting(struct nccl_run *run, struct err *err)
{
    struct nccl_form_way *f = &run->form;
    int rc = part(run, &coll_barrier, err);
    if (rc == 1 && deadline_passed(f->deadline))
        return err_set(err, ETIMEDOUT,
                       "rank %d waited %u s for the other ranks to say that NCCL is ready there",
                       run->rank, 2 * run->limits.init_ms / 1000);
    if (rc == 0)
        f->phase = FORM_READY;
    return rc;
}

static int form_ready(struct nccl_run *run, struct err *err)
{
    return 0;
}

static int (*const form_phases[FORM_PHASES])(struct nccl_run *run, struct err *err) = {
    [FORM_NONE] = form_none,       [FORM_ENDING] = form_ending, [FORM_MAKING] = form_making,
    [FORM_MEETING] = form_meeting, [FORM_READY] = form_ready,
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
