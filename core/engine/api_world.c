/* SPDX-License-Identifier: Apache-2.0
 *
 * api_world: the functions of hvd.h about the world: its numbers, places and boundaries.
 */
#include <hvd.h>

#include <string.h>

#include "core/engine/api_private.h"
#include "core/engine/boundary.h"
#include "core/engine/engine.h"
#include "core/engine/life.h"

enum number {
    NUMBER_RANK,
    NUMBER_SIZE,
    NUMBER_LOCAL_RANK,
    NUMBER_LOCAL_SIZE,
    NUMBER_CROSS_RANK,
    NUMBER_CROSS_SIZE,
    NUMBER_PLACE
};

static int number(enum number what)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    const int numbers[] = {
        [NUMBER_RANK] = w.rank,
        [NUMBER_SIZE] = w.size,
        [NUMBER_LOCAL_RANK] = w.local_rank,
        [NUMBER_LOCAL_SIZE] = w.local_size,
        [NUMBER_CROSS_RANK] = w.cross_rank,
        [NUMBER_CROSS_SIZE] = w.cross_size,
        [NUMBER_PLACE] = w.place,
    };
    int v = numbers[what];
    life_end();
    return v;
}

int hvd_rank(void)
{
    return number(NUMBER_RANK);
}

int hvd_size(void)
{
    return number(NUMBER_SIZE);
}

int hvd_local_rank(void)
{
    return number(NUMBER_LOCAL_RANK);
}

int hvd_local_size(void)
{
    return number(NUMBER_LOCAL_SIZE);
}

int hvd_cross_rank(void)
{
    return number(NUMBER_CROSS_RANK);
}

int hvd_cross_size(void)
{
    return number(NUMBER_CROSS_SIZE);
}

int hvd_place(void)
{
    return number(NUMBER_PLACE);
}

int hvd_places(int *ret_places, int n)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? engine_places(e, ret_places, ret_places ? n : 0)
               : err_set(api_error(), EAGAIN,
                         "this rank has not entered the job: it knows no other rank's place before "
                         "hvd_enter()");
    life_end();
    return rc;
}

bool hvd_homogeneous(void)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return false;
    life_end();
    return w.homogeneous;
}

int hvd_world(struct hvd_world *ret_world)
{
    struct engine *e;
    struct world v;
    if (life_peek(&e, &v, api_error()) < 0)
        return api_error()->code;
    struct hvd_world w = {.size_of_struct = ret_world->size_of_struct,
                          .epoch = v.epoch,
                          .rank = v.rank,
                          .size = v.size,
                          .source = v.source,
                          .joined = v.joined,
                          .left = v.left,
                          .is_new = v.is_new,
                          .elastic = !e || e->boot.elastic,
                          .repair_ns = e ? atomic_load(&e->repair.last_ns) : 0,
                          .waiting = !e};
    life_end();
    memcpy(ret_world, &w, w.size_of_struct < sizeof(w) ? w.size_of_struct : sizeof(w));
    return 0;
}

int hvd_commit(void)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    bool outside = !e;
    life_end();
    e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    /* This rank was admitted during this call, at the other ranks' boundary, so this boundary is
     * done. If all ranks are new (w.is_new is false then), the boundary is still to come. */
    engine_world(e, &w);
    bool came = outside && w.is_new;
    int rc = came ? 1 : boundary_commit(e, api_error());
    life_end();
    return rc;
}
