/* SPDX-License-Identifier: Apache-2.0
 *
 * set_room: whether the limits of this process and of its container have room for another set, with
 * all that this rank's sets may still take. So a set that is too much is refused on all ranks, with
 * the numbers, before any rank runs out of descriptors or is killed for lack of memory. Nothing is
 * refused for the memory of a GPU: how much NCCL needs there is only known afterwards.
 */
#include "core/backend/device.h"
#include "core/backend/gpu.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/coll/coll.h"
#include "core/engine/drive.h"
#include "core/engine/engine.h"
#include "core/engine/set_private.h"
#include "core/engine/sets.h"

/* What the new set takes, and what those that exist may still take. */
struct need {
    size_t fds;
    size_t memory, memory_to_come;
    int local; /* members on this host */
};

/* (lock) How many of these ranks of the user's world are on this host. */
static int count_local(const struct engine *e, const int *ranks, int n)
{
    const struct world_map *map = &e->circle.map;
    int local = 0;
    for (int i = 0; i < n; i++)
        if (ranks[i] >= 0 && ranks[i] < map->size)
            local += mesh_count_local(e->circle.mesh, &map->to_mesh[ranks[i]], 1);
    return local;
}

static struct need find_need(struct engine *e, const int *ranks, int n)
{
    struct need need = {.fds = 1 + mesh_most_fds(n)}; /* 1: the epoll set of all meshes */
    drive_lock(e);
    need.local = count_local(e, ranks, n);
    need.memory = coll_shared_memory(need.local);
    need.memory_to_come = coll_shared_memory_to_come(e->circle.mesh);
    for (size_t i = 0; i < e->sets.ncircles; i++) {
        need.fds += mesh_fds_to_come(e->sets.circles[i]->mesh);
        need.memory_to_come += coll_shared_memory_to_come(e->sets.circles[i]->mesh);
    }
    drive_leave(e);
    return need;
}

/* Sets of other ranks of the container take memory, too. It shows once they have used it. */
static int need_memory(const struct need *need, struct err *err)
{
    struct memory m;
    char new[24], to_come[24], left[24], limit[24];
    if (need->memory == 0 || !memory_read("", &m) || need->memory + need->memory_to_come <= m.left)
        return 0;
    return err_set(err, ENOMEM,
                   "shared memory of this set's %d ranks on this host needs %s, and the other sets "
                   "of this rank may need %s more, but only %s are left of %s of %s: remove sets "
                   "that are not used, or give the job more memory",
                   need->local, memory_text(need->memory, new, sizeof(new)),
                   memory_text(need->memory_to_come, to_come, sizeof(to_come)),
                   memory_text(m.left, left, sizeof(left)),
                   m.machine ? "the machine's memory" : "the container's memory limit",
                   memory_text(m.limit, limit, sizeof(limit)));
}

int sets_need_room(struct engine *e, const int *ranks, int n, struct err *err)
{
    struct need need = find_need(e, ranks, n);
    int rc = fd_limit_need(need.fds, err);
    return rc == 0 ? need_memory(&need, err) : rc;
}

static void warn_of_gpu(const struct set *set, const struct gpu *gpu)
{
    const struct gpu_room *r = &gpu->room;
    char left[24], total[24], most[24];
    log_warn(
        "%s is about to make a communicator of NCCL's, and only %s are left of %s of memory "
        "of GPU %d, where this rank has %d communicator%s (the largest so far took %s): if NCCL "
        "cannot make it, this rank fails. Remove sets that are not used, or leave more memory "
        "of the GPU free",
        set->text, memory_text(r->left, left, sizeof(left)),
        memory_text(r->total, total, sizeof(total)), gpu->device->ordinal, r->communicators,
        r->communicators == 1 ? "" : "s", memory_text(r->most, most, sizeof(most)));
}

void sets_look_at_gpu(struct circle *c, int ordinal)
{
    struct set *set = sets_find(&c->engine->sets, c->set);
    auto_visit visit = {0};
    struct gpu *gpu;
    /* The setup reports a GPU that cannot be used. */
    if (!set || set->warned || device_gpu(c->device, ordinal, &gpu, NULL) < 0 ||
        gpu->room.most == 0 || cuda_enter(gpu->device, &visit, NULL) < 0)
        return;
    gpu_room_look(gpu);
    set->warned = gpu_room_is_little(&gpu->room);
    if (set->warned)
        warn_of_gpu(set, gpu);
}
