/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_calls: operations of several NCCL calls in sequence, for callers that pack themselves.
 * See nccl_run.h.
 */
#include "core/backend/nccl_run_private.h"

struct nccl_means nccl_run_means(const struct nccl_run *run)
{
    struct nccl_means means = nccl_comm_means(run->comm);
    means.kernels = run->kernels;
    return means;
}

void nccl_run_use(struct nccl_run *run)
{
    run->used = true;
    run->marked = false;
}

int nccl_run_call(struct nccl_run *run, const struct coll_op *op, struct err *err)
{
    if (run->doing != RUN_IDLE && run->doing != RUN_BEHIND)
        return err_set(err, EBUSY, "a call of NCCL's is in flight");
    if (!run->comm || run->form.phase != FORM_READY)
        return nccl_run_none(run, err);
    struct nccl_means means = nccl_comm_means(run->comm);
    int rc = nccl_steps_make(&means, op, run->rank, run->size, &run->steps, err);
    if (rc < 0)
        return rc;
    run->packed = false;
    run->doing = RUN_LAUNCHED;
    nccl_run_use(run);
    return nccl_comm_launch(run->comm, &run->steps, run->gpu->stream, err);
}

int nccl_run_called(struct nccl_run *run, struct err *err)
{
    if (run->doing != RUN_LAUNCHED && run->doing != RUN_BEHIND)
        return 0;
    int rc = nccl_comm_progress(run->comm, err);
    if (rc == 0)
        run->doing = RUN_BEHIND;
    return rc;
}
