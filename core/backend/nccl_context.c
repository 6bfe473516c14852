/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_context: see nccl_context.h.
 */
#include "core/backend/nccl_context.h"

#include <errno.h>

/* Runs on a thread that only calls NCCL, so the context that was current there before need not be
 * restored. */
static int bind(void *ctx)
{
    const struct nccl_context *c = ctx;
    unsigned mode = CUDA_CAPTURE_RELAXED;
    if (c->api->context_set(c->context) != CUDA_OK)
        return -EIO;
    return c->api->capture_mode(&mode) == CUDA_OK ? 0 : -EIO;
}

static int copy(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
    const struct nccl_context *c = ctx;
    cuda_address to = (uintptr_t)dst, from = (uintptr_t)src;
    return c->api->copy(to, from, bytes, stream) == CUDA_OK ? 0 : -EIO;
}

struct nccl_host nccl_context_host(struct nccl_context *context)
{
    return (struct nccl_host){.ctx = context, .bind = bind, .copy = copy};
}

/* A list keeps it reachable for leak checkers. */
void nccl_context_abandon(struct nccl_context *context)
{
    static struct nccl_context *abandoned;
    context->next = abandoned;
    abandoned = context;
}
