/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_units: what other ranks say about their fixed sets (engine/set_units.h): the cards of
 * several ranks, one after the other, and this rank's own, in a world whose places have gaps.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/engine/engine.h"
#include "core/engine/set_units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SETS = 3, RANKS = 6 };

static int world_places[RANKS] = {0, 1, 2, 4, 5, 9};
static int set_places[SETS][3] = {{0, 1, 2}, {2, 3, 4}, {9, 5, 4}};

static bool is_broken(const struct engine *e, int place, bool *ret)
{
    for (int r = 0; r < RANKS; r++)
        if (world_places[r] == place) {
            *ret = e->boot.broken[r];
            return true;
        }
    return false;
}

/* The ranks of a fixed set are of one unit, which is broken if one of their places is empty. */
static void check_set(const struct engine *e, const struct set *set)
{
    bool all = false, any = false, missing = false;
    for (int i = 0; i < set->whole; i++) {
        bool broken = false, filled = is_broken(e, set->places[i], &broken);
        missing = missing || !filled;
        any = any || (filled && broken);
        all = (i == 0 || all) && (!filled || broken);
    }
    if (any != all || (missing && !all))
        abort();
}

static void make_sets(struct engine *e, struct set *sets, struct set **table)
{
    e->sets = (struct sets){.table = table, .n = SETS};
    for (int i = 0; i < SETS; i++) {
        sets[i].number = i + 1;
        sets[i].places = set_places[i];
        sets[i].whole = 3;
        sets[i].fixed = i == 0;
        sets[i].view.rank = i;
        table[i] = &sets[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) struct engine e;
    static struct set sets[SETS];
    static bool broken[RANKS], fresh[RANKS];
    static struct world world = {.size = RANKS, .places = world_places, .fresh = fresh};
    struct set *table[SETS];
    struct set_units units = {.places = NULL};
    struct err err;
    struct buf in = {0}, own = {0};
    if (size > BOOT_CARD_MAX)
        return 0;
    make_sets(&e, sets, table);
    e.worlds = &world;
    e.boot.keeps_places = true;
    e.boot.size = RANKS;
    e.boot.places = world_places;
    e.boot.broken = broken;
    buf_put(&in, data, size);
    for (size_t before = in.len + 1; in.len > 0 && in.len < before;) {
        before = in.len;
        if (set_units_take(&e, &units, &in, &err) < 0)
            break;
    }
    set_units_put(&e, &own);
    if (set_units_take(&e, &units, &own, &err) < 0 || own.len > 0 ||
        set_units_end(&e, &units, &err) < 0 || !sets[0].fixed)
        abort();
    for (int i = 0; i < SETS; i++)
        if (sets[i].fixed)
            check_set(&e, &sets[i]);
    set_units_fini(&units);
    buf_fini(&in);
    buf_fini(&own);
    return 0;
}
