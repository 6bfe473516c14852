/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_context: the GPU's context for calls into NCCL, which may run on threads of their own
 * (caller.h).
 */
#ifndef HVD_BACKEND_NCCL_CONTEXT_H
#define HVD_BACKEND_NCCL_CONTEXT_H

#include "core/backend/cuda.h"
#include "core/backend/nccl_steps.h"

/* Data that calls into NCCL read on threads of their own. If a call hangs, its data is not freed:
 * the call's thread may still read it. */
struct nccl_context {
    const struct cuda_api *api;
    struct CUctx_st *context;
    struct nccl_context *next;
};

/* The functions that NCCL's calls need; ctx is the context, which is borrowed. */
struct nccl_host nccl_context_host(struct nccl_context *context);

/* A thread was abandoned in NCCL: what it reads must never be freed. */
void nccl_context_abandon(struct nccl_context *context);

#endif
