/* SPDX-License-Identifier: Apache-2.0
 *
 * world: see world.h.
 */
#include "core/engine/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/boot/boot.h"
#include "core/transport/mesh.h"

/* Number of hosts that have a rank with this rank's local rank. before: only hosts before this
 * rank's host. */
static int hosts_like(const struct mesh *m, bool before)
{
    int n = 0;
    for (int h = 0; h < (before ? m->host : m->hosts); h++)
        n += m->local_size_of[h] > m->local_rank;
    return n;
}

static int by_number(const void *a, const void *b, void *arg)
{
    const uint32_t *members = arg;
    uint32_t x = members[*(const int *)a], y = members[*(const int *)b];
    return (x > y) - (x < y);
}

static void sort_members(struct world *w)
{
    for (int r = 0; r < w->size; r++)
        w->by_member[r] = r;
    qsort_r(w->by_member, (size_t)w->size, sizeof(int), by_number, w->members);
}

struct world *world_make(const struct boot *boot, const struct mesh *m)
{
    struct world *w = calloc(1, sizeof(*w));
    uint32_t *members = calloc((size_t)m->size, sizeof(*members));
    int *by_member = calloc((size_t)m->size, sizeof(*by_member));
    bool *fresh = calloc((size_t)m->size, sizeof(*fresh));
    if (!w || !members || !by_member || !fresh) {
        free(w);
        free(members);
        free(by_member);
        free(fresh);
        return NULL;
    }
    *w = (struct world){.epoch = m->epoch,
                        .rank = m->rank,
                        .size = m->size,
                        .local_rank = m->local_rank,
                        .local_size = m->local_size,
                        .cross_rank = hosts_like(m, true),
                        .cross_size = hosts_like(m, false),
                        .homogeneous = true,
                        .source = -1,
                        .members = members,
                        .fresh = fresh,
                        .by_member = by_member};
    for (int h = 1; h < m->hosts; h++)
        w->homogeneous = w->homogeneous && m->local_size_of[h] == m->local_size_of[0];
    for (int r = 0; r < m->size; r++) {
        fresh[r] = boot->is_new && boot->is_new[r];
        members[r] = m->members ? m->members[r] : (uint32_t)r;
        w->joined += fresh[r];
        if (!fresh[r] && w->source < 0)
            w->source = r;
    }
    w->is_new = boot->is_new && boot->is_new[m->rank];
    w->source = w->source < 0 ? 0 : w->source;
    sort_members(w);
    return w;
}

void world_destroy(struct world *w)
{
    for (struct world *older; w; w = older) {
        older = w->older;
        free(w->members);
        free(w->by_member);
        free(w->fresh);
        free(w);
    }
}

struct world *world_of(struct world *w, uint32_t epoch)
{
    while (w && w->epoch != epoch)
        w = w->older;
    return w;
}

int world_rank_of(const struct world *w, uint32_t member)
{
    int low = 0, high = w->size;
    while (low < high) {
        int middle = low + (high - low) / 2, r = w->by_member[middle];
        if (w->members[r] == member)
            return r;
        if (w->members[r] < member)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static bool has_come_anew(const struct world *w, uint32_t since, uint32_t member)
{
    for (; w && w->epoch > since; w = w->older) {
        int r = world_rank_of(w, member);
        if (r >= 0 && w->fresh[r])
            return true;
    }
    return false;
}

int world_joined(const struct world *w, const struct world *before)
{
    int n = 0;
    for (int r = 0; r < w->size; r++)
        n += world_rank_of(before, w->members[r]) < 0 ||
             has_come_anew(w, before->epoch, w->members[r]);
    return n;
}

int world_map_init(struct world_map *m, const struct world *w, const struct mesh *mesh,
                   struct err *err)
{
    struct world_map fresh = {.to_mesh = malloc((size_t)w->size * sizeof(int)),
                              .to_world = malloc((size_t)mesh->size * sizeof(int)),
                              .same = w->size == mesh->size};
    if (!fresh.to_mesh || !fresh.to_world) {
        world_map_fini(&fresh);
        return err_set(err, ENOMEM, "no memory for the map of the ranks");
    }
    memset(fresh.to_mesh, 0xff, (size_t)w->size * sizeof(int));
    for (int r = 0; r < mesh->size; r++) {
        int at = world_rank_of(w, mesh->members ? mesh->members[r] : (uint32_t)r);
        fresh.to_world[r] = at;
        fresh.same = fresh.same && at == r;
        if (at >= 0)
            fresh.to_mesh[at] = r;
    }
    world_map_fini(m);
    *m = fresh;
    return 0;
}

int world_map_same(struct world_map *m, int n, struct err *err)
{
    m->to_mesh = malloc((size_t)n * sizeof(int));
    m->to_world = malloc((size_t)n * sizeof(int));
    if (!m->to_mesh || !m->to_world)
        return err_set(err, ENOMEM, "no memory for the map of the ranks");
    for (int r = 0; r < n; r++)
        m->to_mesh[r] = m->to_world[r] = r;
    m->same = true;
    return 0;
}

void world_map_fini(struct world_map *m)
{
    free(m->to_mesh);
    free(m->to_world);
    *m = (struct world_map){0};
}
