/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_room: see gpu_room.h.
 */
#include "core/backend/gpu_room.h"

#include <stdio.h>
#include <string.h>

#include "core/backend/gpu.h"
#include "core/base/memory.h"

void gpu_room_look(struct gpu *gpu)
{
    struct gpu_room *r = &gpu->room;
    if (cuda_memory_left(gpu->device, &r->left, &r->total, NULL) < 0)
        r->left = r->total = 0;
}

void gpu_room_begin(struct gpu *gpu, struct gpu_room_part *part)
{
    struct gpu_room *r = &gpu->room;
    gpu_room_look(gpu);
    *part = (struct gpu_room_part){.state = GPU_ROOM_MAKING,
                                   .left = r->left,
                                   .little = gpu_room_is_little(r),
                                   .alone = r->making++ == 0,
                                   .changes = ++r->changes};
}

void gpu_room_made(struct gpu *gpu, struct gpu_room_part *part)
{
    struct gpu_room *r = &gpu->room;
    bool alone = part->alone && part->changes == r->changes;
    gpu_room_look(gpu);
    if (alone && r->total > 0 && part->left > r->left && part->left - r->left > r->most)
        r->most = part->left - r->left;
    part->state = GPU_ROOM_READY;
    r->making--;
    r->communicators++;
    r->changes++;
}

void gpu_room_ended(struct gpu *gpu, struct gpu_room_part *part)
{
    struct gpu_room *r = &gpu->room;
    r->making -= part->state == GPU_ROOM_MAKING;
    r->communicators -= part->state == GPU_ROOM_READY;
    r->changes += part->state != GPU_ROOM_NONE;
    part->state = GPU_ROOM_NONE;
}

bool gpu_room_is_little(const struct gpu_room *r)
{
    return r->total > 0 && r->left < r->most;
}

/* NCCL reports a failed allocation as "unhandled cuda error", and says more in its last message:
 * CUDA's error, or, since a later line replaces it, the bytes that it could not get. */
static bool is_lack(const struct err *err, const struct gpu_room_part *part)
{
    return (part->state == GPU_ROOM_MAKING && part->little && err->code == -EIO) ||
           strstr(err->msg, "out of memory") || strstr(err->msg, "Failed to CUDA ");
}

void gpu_room_explain(struct gpu *gpu, const struct gpu_room_part *part, struct err *err)
{
    const struct gpu_room *r = &gpu->room;
    char left[24], total[24], most[24], took[64] = "";
    if (!err || !is_lack(err, part))
        return;
    gpu_room_look(gpu);
    if (r->total == 0)
        return;
    if (r->most > 0)
        snprintf(took, sizeof(took), " (the largest so far took %s)",
                 memory_text(r->most, most, sizeof(most)));
    const struct err why = *err;
    err_set(err, -why.code,
            "%s: GPU %d has %s of %s of memory left, and this rank has %d communicator%s "
            "there%s",
            why.msg, gpu->device->ordinal, memory_text(r->left, left, sizeof(left)),
            memory_text(r->total, total, sizeof(total)), r->communicators,
            r->communicators == 1 ? "" : "s", took);
}
