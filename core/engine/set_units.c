/* SPDX-License-Identifier: Apache-2.0
 *
 * set_units: see set_units.h. The bytes are {u16 n, n times {u32 number of the set, list of places
 * (negotiate/ranklist)}}.
 */
#include "core/engine/set_units.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/set_private.h"
#include "core/negotiate/ranklist.h"

/* Whether a rank that knows the set has one of its places in the newest world. */
static bool has_member(const struct engine *e, const struct set *set)
{
    const struct world *w = e->worlds;
    for (int i = 0; i < set->whole; i++) {
        int r = world_at_place(w, set->places[i]);
        if (r >= 0 && !w->fresh[r])
            return true;
    }
    return false;
}

/* Of a set of hvd_set_add() all other ranks tell when none of its members is left: it is still part
 * of its unit. */
static bool is_told(const struct engine *e, const struct set *set)
{
    if (!set->fixed || !set->places)
        return false;
    return set->view.rank >= 0 || (set->number < SETS_FORMED && !has_member(e, set));
}

bool set_is_untold(const struct engine *e, const struct set *set)
{
    const struct world *w = e->worlds;
    bool free_place = false;
    if (!set->fixed || !set->places || set->view.rank < 0 || w->broken[w->rank])
        return false;
    for (int i = 0; i < set->whole; i++)
        free_place = free_place || world_at_place(w, set->places[i]) < 0;
    return free_place;
}

static size_t bytes_of(const struct set *set)
{
    return 4 + ranklist_bytes(set->places, set->whole);
}

/* Whether this rank has to tell of the set now, or would have to if all members were lost. */
static bool may_be_told(const struct set *set)
{
    return set->places && (set->view.rank >= 0 || set->number < SETS_FORMED);
}

int set_units_fit(const struct engine *e, const struct set *more, struct err *err)
{
    size_t bytes = 2, n = 0;
    for (size_t i = 0; i < e->sets.n; i++) {
        const struct set *set = e->sets.table[i];
        if (!may_be_told(set) || !(set->fixed || set == more))
            continue;
        bytes += bytes_of(set);
        n++;
    }
    return bytes <= SET_UNITS_BYTES_MAX
               ? 0
               : err_set(err, E2BIG, "the places of %zu fixed sets need %zu bytes, %d are possible",
                         n, bytes, SET_UNITS_BYTES_MAX);
}

void set_units_put(const struct engine *e, struct buf *out)
{
    struct buf list = {0};
    uint16_t n = 0;
    for (size_t i = 0; i < e->sets.n; i++) {
        const struct set *set = e->sets.table[i];
        if (!is_told(e, set) || 2 + list.len + bytes_of(set) > SET_UNITS_BYTES_MAX)
            continue;
        n++;
        buf_put_u32(&list, (uint32_t)set->number);
        ranklist_write(set->places, set->whole, &list);
    }
    buf_put_u16(out, n);
    buf_put(out, list.data, list.len);
    out->failed |= list.failed;
    buf_fini(&list);
}

/* The other rank may have called hvd_set_fix() before this one. */
static void learn_fixed(struct engine *e, int number, const int *places, int n)
{
    struct set *set = sets_find(&e->sets, number);
    if (set && !set->fixed && set->places && set->whole == n &&
        memcmp(set->places, places, (size_t)n * sizeof(*places)) == 0)
        set->fixed = true;
}

static int take_set(struct engine *e, struct set_units *u, struct reader *r, struct err *err)
{
    uint32_t number = reader_u32(r);
    int n = ranklist_read_to(r, BOOT_SIZE_MAX, u->places);
    if (n < 0 || number > INT32_MAX)
        return err_set(err, EPROTO, "its list of fixed sets cannot be read");
    learn_fixed(e, (int)number, u->places, n);
    return units_add(&u->units, u->places, n, err);
}

int set_units_take(struct engine *e, struct set_units *u, struct buf *buf, struct err *err)
{
    struct reader r = reader_over(buf->data, buf->len);
    unsigned n = reader_u16(&r);
    int rc = 0;
    if (n > 0 && !u->places && !(u->places = malloc(BOOT_SIZE_MAX * sizeof(*u->places))))
        return err_set(err, ENOMEM, "no memory for a list of places");
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = take_set(e, u, &r, err);
    if (rc == 0 && r.failed)
        rc = err_set(err, EPROTO, "its list of fixed sets is cut short");
    if (rc == 0)
        buf_consume(buf, r.pos);
    return rc;
}

int set_units_end(struct engine *e, struct set_units *u, struct err *err)
{
    struct boot *b = &e->boot;
    if (!b->keeps_places)
        return 0;
    for (int i = 0; i < b->size; i++) {
        int rc = units_fill(&u->units, b->places[i], err);
        if (rc < 0)
            return rc;
    }
    units_settle(&u->units);
    for (int i = 0; i < b->size; i++)
        b->broken[i] = units_is_broken(&u->units, b->places[i]);
    return 0;
}

void set_units_fini(struct set_units *u)
{
    units_fini(&u->units);
    free(u->places);
    u->places = NULL;
}
