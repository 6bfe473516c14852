/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_form: what a rank reports of itself, the verdict on all reports, and the communicator of
 * an epoch. See nccl_run.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/nccl_run_private.h"
#include "core/base/cleanup.h"
#include "core/base/fd.h"

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
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int gpus = 0;
    if (d->api->device_count(&gpus) != CUDA_OK)
        gpus = 1; /* ours */
    f->driver = d->api->version;
    f->gpus = gpus;
    f->sm = d->sm;
    f->hides_gpus = gpus == 0 && visible && (!*visible || strcmp(visible, "-1") == 0);
    f->shares_gpu = shares && atoi(shares) != 0;
    memcpy(f->gpu, d->identity, sizeof(f->gpu));
}

static void say_nccl(const struct nccl_run *run, struct nccl_fact *f)
{
    if (run->no_nccl.code) {
        snprintf(f->why, sizeof(f->why), "%.399s", run->no_nccl.msg);
        return;
    }
    f->nccl = run->api->version;
    f->cuda = run->api->cuda;
    snprintf(f->why, sizeof(f->why), "%.399s", run->api->path);
}

int nccl_run_say(struct nccl_run *run, int rank, int size, struct nccl_fact *ret)
{
    int rc = nccl_run_load(run);
    if (rc == 0 && nccl_run_aborting(run))
        return 1;
    memset(ret, 0, sizeof(*ret)); /* sent as bytes, with its padding */
    if (rc == 0 && rank == 0 && !run->unused)
        rc = nccl_comm_id(run->comm, size, &run->id, &run->no_nccl);
    if (rc == 1)
        return 1;
    run->unused = false; /* from here on other ranks may use it */
    ret->id = run->id;
    ret->rank = rank;
    say_host(ret);
    say_gpu(run->gpu->device, ret);
    say_nccl(run, ret);
    ret->kernels = run->gpu->kernels;
    return 0;
}

enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *err)
{
    char line[1000];
    run->rank = rank;
    run->size = size;
    run->id = all[0].id;
    run->kernels = true;
    for (int r = 0; r < size; r++)
        run->kernels = run->kernels && all[r].kernels;
    enum nccl_verdict verdict = nccl_facts_judge(all, size, line, sizeof(line));
    if (verdict == NCCL_BAD)
        err_set(err, ENOTSUP, "%s", line);
    else if (verdict == NCCL_WARN && err)
        snprintf(err->msg, sizeof(err->msg), "%s", line);
    run->heard = verdict != NCCL_BAD;
    run->unused = verdict == NCCL_BAD && rank == 0 && all[0].nccl != 0;
    return verdict;
}

int nccl_run_form(struct nccl_run *run, struct err *err)
{
    int rc = run->heard ? 0 : nccl_run_none(run, err);
    if (rc == 0 && nccl_comm_phase(run->comm) == NCCL_NONE)
        rc = nccl_comm_start(run->comm, run->rank, run->size, &run->id, err);
    if (rc == 0)
        rc = nccl_comm_progress(run->comm, err);
    run->ready = rc == 0;
    if (rc < 0 && run->heard)
        nccl_comm_abort(run->comm);
    run->heard = run->heard && rc >= 0;
    return rc;
}
