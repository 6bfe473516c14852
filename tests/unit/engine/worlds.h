/* SPDX-License-Identifier: Apache-2.0
 *
 * worlds: worlds for tests, of at most WORLDS_MAX members. A set of members is a mask of bits.
 */
#ifndef HVD_TESTS_UNIT_ENGINE_WORLDS_H
#define HVD_TESTS_UNIT_ENGINE_WORLDS_H

#include <stddef.h>

#include "core/boot/boot.h"
#include "core/engine/world.h"
#include "core/transport/mesh.h"

enum { WORLDS_MAX = 8 };

struct worlds_masks {
    uint32_t members; /* in the order of ranks; a member's number is its place */
    uint32_t fresh;   /* those that joined in this epoch */
    uint32_t broken;  /* those that are part of a broken unit */
    uint32_t starts;  /* those whose process is in its first epoch */
};

/* NULL: no memory. */
static inline struct world *worlds_make(uint32_t epoch, struct worlds_masks m, struct world *older)
{
    uint32_t list[WORLDS_MAX];
    int places[WORLDS_MAX], size = 0;
    bool is_new[WORLDS_MAX], broken[WORLDS_MAX], starts[WORLDS_MAX];
    for (uint32_t i = 0; i < WORLDS_MAX; i++) {
        if (!(m.members >> i & 1))
            continue;
        is_new[size] = m.fresh >> i & 1;
        broken[size] = m.broken >> i & 1;
        starts[size] = m.starts >> i & 1;
        places[size] = (int)i;
        list[size++] = i;
    }
    const struct boot boot = {
        .is_new = is_new, .broken = broken, .starts = starts, .places = places};
    const struct mesh mesh = {.epoch = epoch,
                              .size = size,
                              .hosts = 1,
                              .local_size = size,
                              .local_size_of = &size,
                              .members = list};
    struct world *w = world_make(&boot, &mesh);
    if (w)
        w->older = older;
    return w;
}

#endif
