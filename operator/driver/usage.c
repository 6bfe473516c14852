/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: see usage.h.
 */
#include "operator/driver/usage.h"

#include <errno.h>
#include <stdlib.h>

struct used {
    struct resources sum;
    size_t pods;
};

int usage_add(struct usage *u, const char *node, const struct resources *r)
{
    struct store_entry *e = store_find(&u->nodes, node);
    if (!e) {
        struct used *fresh = calloc(1, sizeof(*fresh));
        e = fresh ? store_add(&u->nodes, node) : NULL;
        if (!e) {
            free(fresh);
            return -ENOMEM;
        }
        e->item = fresh;
    }
    struct used *used = e->item;
    resources_add(&used->sum, r);
    used->pods++;
    return 0;
}

void usage_remove(struct usage *u, const char *node, const struct resources *r)
{
    struct store_entry *e = store_find(&u->nodes, node);
    if (!e)
        return;
    struct used *used = e->item;
    resources_subtract(&used->sum, r);
    if (--used->pods > 0)
        return;
    free(used);
    store_remove(&u->nodes, e);
}

void usage_get(const struct usage *u, const char *node, struct resources *ret)
{
    const struct store_entry *e = store_find(&u->nodes, node);
    *ret = e ? ((const struct used *)e->item)->sum : (struct resources){0};
}

void usage_fini(struct usage *u)
{
    for (struct store_entry *e = store_next(&u->nodes, NULL); e; e = store_next(&u->nodes, e))
        free(e->item);
    store_fini(&u->nodes);
}
