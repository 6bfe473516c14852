/* SPDX-License-Identifier: Apache-2.0
 *
 * set_view: see set_view.h.
 */
#include "core/engine/set_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/ranklist.h"

int set_view_init(struct set_view *v, const struct world *w, const int *ranks, int n, int whole,
                  struct err *err)
{
    v->ranks = calloc((size_t)whole, sizeof(*v->ranks));
    v->members = calloc((size_t)whole, sizeof(*v->members));
    if (!v->ranks || !v->members) {
        set_view_fini(v);
        return err_set(err, ENOMEM, "no memory for a set of %d ranks", whole);
    }
    v->size = n;
    v->rank = ranklist_find(ranks, n, w->rank);
    for (int i = 0; i < n; i++) {
        v->ranks[i] = ranks[i];
        v->members[i] = w->members[ranks[i]];
    }
    return 0;
}

void set_view_fini(struct set_view *v)
{
    free(v->ranks);
    free(v->members);
    *v = (struct set_view){.rank = -1};
}

void set_view_copy(struct set_view *to, const struct set_view *from)
{
    to->rank = from->rank;
    to->size = from->size;
    memcpy(to->ranks, from->ranks, (size_t)from->size * sizeof(*to->ranks));
    memcpy(to->members, from->members, (size_t)from->size * sizeof(*to->members));
}

int set_view_filter(uint32_t *members, int n, const struct world *w, uint32_t since, bool working)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (working ? world_has_worked(w, since, members[i]) : world_has_kept(w, since, members[i]))
            members[kept++] = members[i];
    return kept;
}

static void find_ranks(struct set_view *v, const struct world *w)
{
    for (int i = 0; i < v->size; i++)
        v->ranks[i] = world_rank_of(w, v->members[i]);
    v->rank = ranklist_find(v->ranks, v->size, w->rank);
}

void set_view_follow(struct set_view *v, const struct world *w, uint32_t since, bool working)
{
    v->size = set_view_filter(v->members, v->size, w, since, working);
    find_ranks(v, w);
}

int set_view_find_working(const struct set_view *v, const struct world *w)
{
    for (int i = 0; i < v->size; i++)
        if (!w->broken[v->ranks[i]])
            return i;
    return -1;
}

void set_view_become(struct set_view *v, const struct world *w, const uint32_t *members, int n)
{
    v->size = n;
    memcpy(v->members, members, (size_t)n * sizeof(*members));
    find_ranks(v, w);
}

int set_view_map_init(struct world_map *m, int n, struct err *err)
{
    m->to_mesh = malloc((size_t)n * sizeof(int));
    m->to_world = malloc((size_t)n * sizeof(int));
    return m->to_mesh && m->to_world ? 0
                                     : err_set(err, ENOMEM, "no memory for the map of %d ranks", n);
}

void set_view_map(const struct set_view *v, const uint32_t *members, int n, struct world_map *m)
{
    int at = 0;
    m->rank = v->rank;
    m->size = v->size;
    m->same = v->size == n;
    for (int r = 0; r < n; r++)
        m->to_world[r] = -1;
    for (int i = 0; i < v->size; i++) {
        int here = at;
        while (here < n && members[here] != v->members[i])
            here++;
        m->to_mesh[i] = here < n ? here : -1;
        m->same = m->same && here == i;
        if (here == n)
            continue;
        m->to_world[here] = i;
        at = here + 1;
    }
}
