/* SPDX-License-Identifier: Apache-2.0
 *
 * api_sets: the functions of hvd.h about sets.
 */
#include <hvd.h>

#include "core/engine/api_private.h"
#include "core/engine/engine.h"
#include "core/engine/life.h"
#include "core/engine/sets.h"

int hvd_set_add(const int *ranks, int n, int *ret_set)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int unused;
    int rc = sets_add(e, ranks, ranks ? n : 0, ret_set ? ret_set : &unused, api_error());
    life_end();
    return rc;
}

int hvd_set_form(const char *name, const int *ranks, int n, int *ret_set)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int unused;
    int rc = sets_form(e, name, ranks, ranks ? n : 0, ret_set ? ret_set : &unused, api_error());
    life_end();
    return rc;
}

int hvd_set_remove(int set)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int rc = sets_remove(e, set, api_error());
    life_end();
    return rc;
}

/* A joiner that has not entered knows the world alone, with provisional numbers. */
static int need_world(int set)
{
    return set == 0 ? 0 : err_set(api_error(), EINVAL, "there is no set %d", set);
}

int hvd_set_rank(int set)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_rank(e, set, api_error()) : need_world(set);
    life_end();
    return !e && rc == 0 ? w.rank : rc;
}

int hvd_set_ranks(int set, int *ret_ranks, int n)
{
    struct engine *e;
    struct world w;
    n = ret_ranks ? n : 0;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_ranks(e, set, ret_ranks, n, api_error()) : need_world(set);
    life_end();
    if (e || rc < 0)
        return rc;
    for (int i = 0; i < n && i < w.size; i++)
        ret_ranks[i] = i;
    return w.size;
}

int hvd_set_size(int set)
{
    return hvd_set_ranks(set, NULL, 0);
}
