/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_places: see roster_places.h.
 */
#include "core/member/roster_places.h"

#include <stdlib.h>

static int compare(int x, int y)
{
    return (x > y) - (x < y);
}

static int by_place(const void *a, const void *b)
{
    const struct roster_placed *x = a, *y = b;
    return compare(x->place, y->place);
}

static int by_order(const void *a, const void *b)
{
    const struct roster_placed *x = a, *y = b;
    return x->order != y->order ? compare(x->order, y->order) : compare(x->member, y->member);
}

/* Survivors are sorted by place. */
static void fill_gaps(struct roster_placed *list, int survivors, int n)
{
    int place = 0, s = 0;
    for (int i = survivors; i < n; i++, place++) {
        for (; s < survivors && list[s].place == place; s++)
            place++;
        list[i].place = place;
    }
}

void roster_places_give(struct roster_placed *list, int survivors, int n, bool keep)
{
    qsort(list, (size_t)survivors, sizeof(*list), by_place);
    if (!keep) {
        for (int i = 0; i < n; i++)
            list[i].place = i;
        return;
    }
    qsort(list + survivors, (size_t)(n - survivors), sizeof(*list), by_order);
    fill_gaps(list, survivors, n);
    qsort(list, (size_t)n, sizeof(*list), by_place);
}
