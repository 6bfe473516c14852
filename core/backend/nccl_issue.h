/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_issue: the calls that put steps (nccl_steps.h) onto a stream: one group. The GPU's context
 * must be current on the calling thread.
 */
#ifndef HVD_BACKEND_NCCL_ISSUE_H
#define HVD_BACKEND_NCCL_ISSUE_H

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"

struct nccl_issue {
    const struct nccl_api *api;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    const struct nccl_host *host; /* makes copies on the device */
    const struct nccl_form *form;
    const struct nccl_step *steps;
    size_t n;
};

/* "In progress" counts as success: communicators do not block. */
static inline bool nccl_failed(int result)
{
    return result != NCCL_ABI_SUCCESS && result != NCCL_ABI_IN_PROGRESS;
}

/* Returns NCCL's result, which may be NCCL_ABI_IN_PROGRESS. *ret_call names the call that failed.
 */
int nccl_issue(const struct nccl_issue *issue, const char **ret_call);

#endif
