/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_steps: see shm_steps.h.
 */
#include "core/coll/shm_steps.h"

#define CELLS 3 /* one cell is being filled, one reduced, one copied out */

static size_t cell_size(size_t staging, int seats)
{
    size_t room = staging / CELLS, wish = (size_t)seats * SHM_SLICE_MAX;
    return (wish < room ? wish : room) & ~(size_t)(SHM_LINE - 1);
}

size_t shm_steps_staging(int seats)
{
    return CELLS * cell_size(SHM_STAGING, seats);
}

void shm_steps_init(struct shm_steps *s, struct mesh *mesh)
{
    *s = (struct shm_steps){.mesh = mesh, .shm = mesh->shm, .cells = CELLS};
    s->cell = cell_size(mesh->shm->staging_size, mesh->shm->seats);
}

static void set_flag(struct shm_steps *s, enum shm_tell what, uint64_t count)
{
    struct shm_flags *flags = shm_flags_of(s->shm, s->shm->seat);
    atomic_store_explicit(shm_steps_flag(flags, what), shm_stamp(s->generation, count),
                          memory_order_release);
}

void shm_steps_tell(struct shm_steps *s, enum shm_tell what, uint64_t count)
{
    set_flag(s, what, count);
    shm_ring_all(s->shm);
}

void shm_steps_tell_some(struct shm_steps *s, enum shm_tell what, uint64_t count, const int *seats,
                         int n)
{
    set_flag(s, what, count);
    shm_ring_some(s->shm, seats, n);
}

void shm_steps_enter(struct shm_steps *s)
{
    if (s->entered && s->generation == s->mesh->generation)
        return;
    s->generation = s->mesh->generation;
    s->entered = true;
    s->given = s->small = 0;
    /* UINT64_MAX is no stamp: the next check of this watch begins at the first seat. */
    s->room = (struct shm_watch){.need = UINT64_MAX};
    shm_steps_tell(s, SHM_OUT, 0);
}
