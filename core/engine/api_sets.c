/* SPDX-License-Identifier: Apache-2.0
 *
 * api_sets: the functions of hvd.h about sets.
 */
#include <hvd.h>

#include "core/engine/api_private.h"
#include "core/engine/engine.h"
#include "core/engine/life.h"
#include "core/engine/rule_functions.h"
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

int hvd_rule_define(const char *name, hvd_rule_f rule, void *arg)
{
    return rule_function_define(name, (struct rule_function){rule, arg}, api_error());
}

int hvd_set_split(const char *rule, int *ret_set)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int unused;
    int rc = sets_split(e, rule, ret_set ? ret_set : &unused, api_error());
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

int hvd_set_fix(int set)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int rc = sets_fix(e, set, api_error());
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

int hvd_set_source(int set)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_source(e, set, api_error()) : need_world(set);
    life_end();
    return rc;
}

int hvd_sets(int *ret_sets, int n)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_numbers(e, ret_sets, ret_sets ? n : 0) : 0;
    life_end();
    return rc;
}

int hvd_set_is_split(int set)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_is_split(e, set, api_error()) : need_world(set);
    life_end();
    return rc;
}

int hvd_set_find(const char *name)
{
    struct engine *e;
    struct world w;
    if (life_peek(&e, &w, api_error()) < 0)
        return api_error()->code;
    int rc = e ? sets_named(e, name, api_error())
               : err_set(api_error(), ENOENT, "this rank has not entered the job yet");
    life_end();
    return rc;
}
