/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_epoch: see nccl_run.h: the communicator of an epoch.
 */
#include "core/backend/nccl_run_private.h"

static int load(struct nccl_run *run)
{
    const struct nccl_host host = nccl_context_host(run->context);
    const struct nccl_api *api;
    run->no_nccl = (struct err){0};
    if (run->api)
        return 0;
    int rc = nccl_api_load(&api, &run->no_nccl);
    if (rc == 0)
        rc = nccl_comm_create(api, &host, &run->limits, &run->comm, &run->no_nccl);
    if (rc == 0)
        run->api = api;
    return rc;
}

int nccl_run_say(struct nccl_run *run, int rank, int size, struct nccl_fact *ret)
{
    int rc = load(run);
    if (rc == 0 && nccl_run_aborting(run))
        return 1;
    if (rc == 0 && rank == 0 && !run->unused)
        rc = nccl_comm_id(run->comm, size, &run->id, &run->no_nccl);
    if (rc == 1)
        return 1;
    run->unused = false; /* from here on other ranks may use it */
    nccl_fact_fill(ret, rank, run->gpu->device, run->api, &run->no_nccl);
    ret->id = run->id;
    ret->kernels = run->gpu->kernels;
    return 0;
}

enum nccl_verdict nccl_run_hear(struct nccl_run *run, const struct nccl_fact *all, int rank,
                                int size, struct err *ret_why)
{
    bool kernels = true;
    for (int r = 0; r < size; r++)
        kernels = kernels && all[r].kernels;
    run->id = all[0].id;
    enum nccl_verdict verdict = nccl_facts_judge(all, size, ret_why);
    run->heard = verdict != NCCL_BAD;
    if (run->heard)
        run->way = (struct nccl_way){.gpu = run->gpu,
                                     .means = {run->api->version, run->api->cuda, false},
                                     .kernels = kernels,
                                     .rank = rank,
                                     .size = size};
    run->unused = verdict == NCCL_BAD && rank == 0 && all[0].nccl != 0;
    return verdict;
}

int nccl_run_form(struct nccl_run *run, struct err *err)
{
    int rc = run->heard ? 0 : nccl_run_none(run, err);
    if (rc == 0 && nccl_comm_phase(run->comm) == NCCL_NONE) {
        gpu_room_begin(run->gpu, &run->part);
        rc = nccl_comm_start(run->comm, run->way.rank, run->way.size, &run->id, err);
    }
    if (rc == 0)
        rc = nccl_comm_progress(run->comm, err);
    if (rc == 0 && !run->ready)
        gpu_room_made(run->gpu, &run->part);
    run->ready = rc == 0;
    if (rc < 0 && run->heard) {
        gpu_room_explain(run->gpu, &run->part, err);
        nccl_comm_abort(run->comm);
    }
    run->heard = run->heard && rc >= 0;
    return rc;
}
