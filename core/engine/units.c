/* SPDX-License-Identifier: Apache-2.0
 *
 * units: see units.h. A forest over the places: each unit is a tree.
 */
#include "core/engine/units.h"

#include <errno.h>
#include <stdlib.h>

static int grow(struct units *u, int place, struct err *err)
{
    int n = u->n ? u->n : 16;
    if (place < u->n)
        return 0;
    while (n <= place)
        n *= 2;
    int *next = realloc(u->next, (size_t)n * sizeof(*next));
    u->next = next ? next : u->next;
    bool *member = realloc(u->member, (size_t)n * sizeof(*member));
    u->member = member ? member : u->member;
    bool *filled = realloc(u->filled, (size_t)n * sizeof(*filled));
    u->filled = filled ? filled : u->filled;
    bool *broken = realloc(u->broken, (size_t)n * sizeof(*broken));
    u->broken = broken ? broken : u->broken;
    if (!next || !member || !filled || !broken)
        return err_set(err, ENOMEM, "no memory for %d places", n);
    for (; u->n < n; u->n++) {
        next[u->n] = u->n;
        member[u->n] = filled[u->n] = broken[u->n] = false;
    }
    return 0;
}

/* The place that stands for the unit of this one. */
static int find(const struct units *u, int place)
{
    while (u->next[place] != place)
        place = u->next[place] = u->next[u->next[place]];
    return place;
}

int units_fill(struct units *u, int place, struct err *err)
{
    int rc = grow(u, place, err);
    if (rc == 0)
        u->filled[place] = true;
    return rc;
}

int units_add(struct units *u, const int *places, int n, struct err *err)
{
    for (int i = 0; i < n; i++) {
        int rc = grow(u, places[i], err);
        if (rc < 0)
            return rc;
        u->member[places[i]] = true;
        u->next[find(u, places[i])] = find(u, places[0]);
    }
    return 0;
}

void units_settle(struct units *u)
{
    for (int i = 0; i < u->n; i++)
        if (u->member[i] && !u->filled[i])
            u->broken[find(u, i)] = true;
}

bool units_is_broken(const struct units *u, int place)
{
    return place < u->n && u->broken[find(u, place)];
}

void units_fini(struct units *u)
{
    free(u->next);
    free(u->member);
    free(u->filled);
    free(u->broken);
    *u = (struct units){.n = 0};
}
