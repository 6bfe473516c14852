/* SPDX-License-Identifier: Apache-2.0
 *
 * set_queries: what hvd.h tells of sets: ranks, numbers, names, and which rank has the training
 * state.
 */
#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/set_private.h"

static const struct set *look_up(struct engine *e, int number, struct err *err)
{
    const struct set *set = sets_find(&e->sets, number);
    if (!set)
        err_set(err, EINVAL, "there is no set %d", number);
    return set;
}

int sets_rank(struct engine *e, int number, struct err *err)
{
    struct world w;
    engine_world(e, &w);
    if (number == 0)
        return w.rank;
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int rank = set ? set->view.rank : err->code;
    if (set && rank < 0)
        rank = err_set(err, ENOENT, "rank %d is not in %s", w.rank, set->text);
    pthread_mutex_unlock(&e->sets.lock);
    return rank;
}

int sets_ranks(struct engine *e, int number, int *ret_ranks, int n, struct err *err)
{
    struct world w;
    engine_world(e, &w);
    if (number == 0) {
        for (int i = 0; i < n && i < w.size; i++)
            ret_ranks[i] = i;
        return w.size;
    }
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int size = set ? set->view.size : err->code;
    if (set && n > 0)
        memcpy(ret_ranks, set->view.ranks, (size_t)(n < size ? n : size) * sizeof(*ret_ranks));
    pthread_mutex_unlock(&e->sets.lock);
    return size;
}

int sets_source(struct engine *e, int number, struct err *err)
{
    struct world w;
    engine_world(e, &w);
    if (number == 0)
        return w.source;
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int source = set ? set->source : err->code;
    if (set && source < 0)
        source = err_set(err, ENODATA, "no rank of %s has the training state", set->text);
    pthread_mutex_unlock(&e->sets.lock);
    return source;
}

int sets_is_split(struct engine *e, int number, struct err *err)
{
    if (number == 0)
        return 0;
    pthread_mutex_lock(&e->sets.lock);
    const struct set *set = look_up(e, number, err);
    int rc = set ? set->by_rule : err->code;
    pthread_mutex_unlock(&e->sets.lock);
    return rc;
}

int sets_numbers(struct engine *e, int *ret_sets, int n)
{
    pthread_mutex_lock(&e->sets.lock);
    int known = (int)e->sets.n;
    for (int i = 0; i < n && i < known; i++)
        ret_sets[i] = e->sets.table[i]->number;
    pthread_mutex_unlock(&e->sets.lock);
    return known;
}

int sets_named(struct engine *e, const char *name, struct err *err)
{
    int number = 0;
    pthread_mutex_lock(&e->sets.lock);
    for (size_t i = 0; name && i < e->sets.n; i++) {
        const struct set *set = e->sets.table[i];
        if (set->name && strcmp(set->name, name) == 0)
            number = set->number;
    }
    pthread_mutex_unlock(&e->sets.lock);
    return number ? number
                  : err_set(err, ENOENT, "this rank is in no set that was formed as '%.60s'",
                            name ? name : "");
}
