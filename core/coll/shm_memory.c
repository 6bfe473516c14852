/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_memory: the memory of shared segments, for limits: how much a segment takes once large
 * operations use it, and how much of that is still to come. Called by the engine through coll.h.
 */
#include "core/coll/coll.h"
#include "core/coll/shm_steps.h"
#include "core/transport/mesh.h"
#include "core/transport/shm.h"

size_t coll_shared_memory(int seats)
{
    return seats > 1 ? shm_memory(seats, shm_steps_staging(seats)) : 0;
}

size_t coll_shared_memory_to_come(const struct mesh *mesh)
{
    struct shm *shm = mesh->shm;
    return shm ? shm_memory_to_come(shm, shm_steps_staging(shm->seats)) : 0;
}
