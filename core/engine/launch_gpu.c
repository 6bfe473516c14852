/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_gpu: see launch_gpu.h.
 */
#include "core/engine/launch_gpu.h"

#include "core/backend/gpu.h"
#include "core/engine/engine.h"

static int enter(struct circle *c, struct launch_gpu *g, int device, struct cuda_visit *ret)
{
    int rc = device_gpu(c->device, device, &g->gpu, &c->engine->trouble);
    return rc == 0 ? cuda_enter(g->gpu->device, ret, &c->engine->trouble) : rc;
}

uint8_t *launch_gpu_scratch(struct circle *c, struct launch_gpu *g, const struct slot *s,
                            size_t bytes)
{
    struct cuda_visit visit = {0};
    int rc = enter(c, g, s->device, &visit);
    if (rc == 0)
        rc = gpu_reserve(g->gpu, &g->scratch, bytes, &c->engine->trouble);
    if (rc == 0 && !g->packed)
        rc = cuda_event_get(g->gpu->device, &g->packed, &c->engine->trouble);
    cuda_leave(&visit);
    if (rc < 0)
        err_prefix(&c->engine->trouble, "%s", s->name);
    return rc == 0 ? g->scratch.at : NULL;
}

int launch_gpu_pack(struct circle *c, struct launch_gpu *g, const struct slot *s, void *to,
                    const void *from, size_t bytes)
{
    struct cuda_visit visit = {0};
    int rc = enter(c, g, s->device, &visit);
    const struct gpu *gpu = g->gpu;
    if (rc == 0)
        rc = cuda_stream_wait(gpu->device, gpu->stream, s->ready, &c->engine->trouble);
    if (rc == 0)
        rc = cuda_copy(gpu->device, CUDA_COPY_INSIDE, to, from, bytes, gpu->stream,
                       &c->engine->trouble);
    cuda_leave(&visit);
    return rc;
}

int launch_gpu_packed(struct circle *c, struct launch_gpu *g, const struct slot *s)
{
    struct cuda_visit visit = {0};
    int rc = enter(c, g, s->device, &visit);
    /* Without any copy the stream has not waited for the slot's event yet. */
    if (rc == 0)
        rc = cuda_stream_wait(g->gpu->device, g->gpu->stream, s->ready, &c->engine->trouble);
    if (rc == 0)
        rc = cuda_event_record(g->gpu->device, g->packed, g->gpu->stream, &c->engine->trouble);
    cuda_leave(&visit);
    return rc;
}

int launch_gpu_copy(struct circle *c, struct launch_gpu *g, int device, void *to, const void *from,
                    size_t bytes)
{
    int rc = device_gpu(c->device, device, &g->gpu, &c->engine->trouble);
    return rc == 0 ? gpu_copy_now(g->gpu, to, from, bytes, &c->engine->trouble) : rc;
}

void launch_gpu_fini(struct launch_gpu *g)
{
    struct cuda_visit visit = {0};
    if (!g->gpu)
        return;
    if (cuda_enter(g->gpu->device, &visit, NULL) == 0) {
        gpu_retire(g->gpu, &g->scratch);
        cuda_event_put(g->gpu->device, g->packed);
    }
    cuda_leave(&visit);
}

void launch_gpu_abandon(struct launch_gpu *g)
{
    *g = (struct launch_gpu){0};
}
