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

static bool make_arrays(struct world *w, size_t n)
{
    w->members = calloc(n, sizeof(*w->members));
    w->places = calloc(n, sizeof(*w->places));
    w->hosts = calloc(n, sizeof(*w->hosts));
    w->local_ranks = calloc(n, sizeof(*w->local_ranks));
    w->by_member = calloc(n, sizeof(*w->by_member));
    w->fresh = calloc(n, sizeof(*w->fresh));
    w->starts = calloc(n, sizeof(*w->starts));
    w->broken = calloc(n, sizeof(*w->broken));
    return w->members && w->places && w->hosts && w->local_ranks && w->by_member && w->fresh &&
           w->starts && w->broken;
}

static void fill_arrays(struct world *w, const struct boot *boot, const struct mesh *m)
{
    for (int r = 0; r < m->size; r++) {
        w->fresh[r] = boot->is_new && boot->is_new[r];
        w->starts[r] = boot->starts && boot->starts[r];
        w->broken[r] = boot->broken && boot->broken[r];
        w->places[r] = boot->places ? boot->places[r] : r;
        w->hosts[r] = m->host_of ? m->host_of[r] : 0;
        w->local_ranks[r] = m->local_of ? m->local_of[r] : r;
        w->members[r] = m->members ? m->members[r] : (uint32_t)r;
        w->joined += w->fresh[r];
        w->nbroken += w->broken[r];
        if (!w->fresh[r] && w->source < 0)
            w->source = r;
    }
    sort_members(w);
}

struct world *world_make(const struct boot *boot, const struct mesh *m)
{
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (struct world){.epoch = m->epoch,
                        .rank = m->rank,
                        .size = m->size,
                        .local_rank = m->local_rank,
                        .local_size = m->local_size,
                        .cross_rank = hosts_like(m, true),
                        .cross_size = hosts_like(m, false),
                        .homogeneous = true,
                        .source = -1};
    if (!make_arrays(w, (size_t)m->size)) {
        world_destroy(w);
        return NULL;
    }
    for (int h = 1; h < m->hosts; h++)
        w->homogeneous = w->homogeneous && m->local_size_of[h] == m->local_size_of[0];
    fill_arrays(w, boot, m);
    w->is_new = w->fresh[m->rank];
    w->place = w->places[m->rank];
    w->source = w->source < 0 ? 0 : w->source;
    return w;
}

void world_destroy(struct world *w)
{
    for (struct world *older; w; w = older) {
        older = w->older;
        free(w->members);
        free(w->places);
        free(w->hosts);
        free(w->local_ranks);
        free(w->by_member);
        free(w->fresh);
        free(w->starts);
        free(w->broken);
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

/* Whether the rank was a joiner in the epoch before w, too. Its report was frozen before it knew
 * that its admission had succeeded, so it is fresh in both. */
static bool is_joining_since_before(const struct world *w, int rank)
{
    int r = w->older ? world_rank_of(w->older, w->members[rank]) : -1;
    return r >= 0 && w->older->fresh[r] && !w->starts[rank];
}

static bool has_come_anew(const struct world *w, uint32_t since, uint32_t member)
{
    for (; w && w->epoch > since; w = w->older) {
        int r = world_rank_of(w, member);
        if (r >= 0 && w->fresh[r] && !is_joining_since_before(w, r))
            return true;
    }
    return false;
}

bool world_has_kept(const struct world *w, uint32_t since, uint32_t member)
{
    return world_rank_of(w, member) >= 0 && !has_come_anew(w, since, member);
}

bool world_has_worked(const struct world *w, uint32_t since, uint32_t member)
{
    bool worked = world_has_kept(w, since, member);
    for (; worked && w && w->epoch >= since; w = w->older) {
        int r = world_rank_of(w, member);
        worked = r >= 0 && !w->broken[r];
    }
    return worked;
}

bool world_was_broken(const struct world *w, uint32_t since, uint32_t member)
{
    bool broken = false;
    for (; !broken && w && w->epoch > since; w = w->older) {
        int r = world_rank_of(w, member);
        broken = r >= 0 && w->broken[r];
    }
    return broken;
}

int world_at_place(const struct world *w, int place)
{
    int low = 0, high = w->size;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (w->places[middle] == place)
            return middle;
        if (w->places[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

bool world_has_process(const struct world *w, uint32_t since, uint32_t member)
{
    bool same = world_rank_of(w, member) >= 0;
    for (; same && w && w->epoch > since; w = w->older) {
        int r = world_rank_of(w, member);
        same = r < 0 || !w->starts[r];
    }
    return same;
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
    struct world_map fresh = {.rank = w->rank,
                              .size = w->size,
                              .to_mesh = malloc((size_t)w->size * sizeof(int)),
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

void world_map_fini(struct world_map *m)
{
    free(m->to_mesh);
    free(m->to_world);
    *m = (struct world_map){0};
}
