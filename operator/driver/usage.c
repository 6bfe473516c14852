/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: see usage.h.
 */
#include "operator/driver/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/driver/usage_private.h"

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct usage_node *make_node(struct usage *u, const char *name)
{
    struct store_entry *e = store_find(&u->nodes, name);
    if (e)
        return e->item;
    struct usage_node *n = calloc(1, sizeof(*n));
    e = n ? store_add(&u->nodes, name) : NULL;
    if (!e) {
        free(n);
        return NULL;
    }
    list_init(&n->pods);
    list_init(&n->seats);
    n->entry = e;
    e->item = n;
    return n;
}

static void free_node(struct usage_node *n)
{
    resources_fini(&n->sum);
    free(n);
}

static void drop_node(struct usage *u, struct usage_node *n)
{
    if (n->there || n->npods > 0)
        return;
    store_remove(&u->nodes, n->entry);
    free_node(n);
}

static bool same_kinds(const struct resources *a, const struct resources *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->others[i].kind != b->others[i].kind)
            return false;
    return true;
}

/* Sums up the node's pods again, of the kinds that it offers now. */
static int sum_again(struct usage_node *n, const struct resources *offered)
{
    struct resources sum;
    if (!n->unknown && same_kinds(&n->sum, offered))
        return 0;
    n->unknown = resources_zero_like(offered, &sum) < 0;
    if (n->unknown)
        return -ENOMEM;
    list_for_each(pos, tmp, &n->pods)
    {
        usage_pod_count(list_entry(pos, struct usage_pod, link), 1, &sum);
    }
    resources_fini(&n->sum);
    n->sum = sum;
    return 0;
}

int usage_set_node(struct usage *u, const char *name, const struct resources *offered)
{
    static const struct resources none;
    struct store_entry *e = store_find(&u->nodes, name);
    struct usage_node *n = e ? e->item : offered ? make_node(u, name) : NULL;
    if (!n)
        return offered ? -ENOMEM : 0;
    n->there = offered;
    int rc = sum_again(n, offered ? offered : &none);
    drop_node(u, n);
    return rc;
}

int usage_get(struct usage *u, const char *node, int index, struct resources *ret)
{
    struct store_entry *e = store_find(&u->nodes, node);
    struct usage_node *n = e ? e->item : NULL;
    if (!n) {
        *ret = (struct resources){.n = 0};
        return 0;
    }
    n->index = index;
    int rc = resources_copy(&n->sum, ret);
    if (rc == 0 && n->unknown)
        ret->amount[RESOURCES_PODS] = QUANTITY_MAX;
    return rc;
}

int usage_ports(const struct usage *u, const char *node, struct hostports *ret)
{
    const struct store_entry *e = store_find(&u->nodes, node);
    struct usage_node *n = e ? e->item : NULL;
    struct hostports ports = {.n = 0};
    int rc = 0;
    *ret = ports;
    if (!n)
        return 0;
    list_for_each(pos, tmp, &n->pods)
    {
        const struct usage_pod *p = list_entry(pos, struct usage_pod, link);
        if (p->more && rc == 0)
            rc = hostports_add(&ports, &p->more->ports);
    }
    if (rc < 0)
        hostports_fini(&ports);
    *ret = ports;
    return rc;
}

/* ---- pods ------------------------------------------------------------------------------------ */

int usage_add(struct usage *u, struct usage_pod *p, const char *name)
{
    if (!p->node || p->at)
        return 0;
    struct usage_node *n = make_node(u, p->node);
    struct usage_more *more = p->more;
    if (!n)
        return -ENOMEM;
    if (more && more->anti && (!(more->name = strdup(name)) || usage_anti_add(u, n, more) < 0)) {
        drop_node(u, n);
        return -ENOMEM;
    }
    p->at = n;
    list_append(&n->pods, &p->link);
    n->npods++;
    usage_pod_count(p, 1, &n->sum);
    free(TAKE(p->node)); /* at has the name */
    return 0;
}

void usage_remove(struct usage *u, struct usage_pod *p)
{
    struct usage_node *n = p ? p->at : NULL;
    if (!n)
        return;
    if (p->more)
        usage_anti_remove(u, p->more);
    list_remove(&p->link);
    usage_pod_count(p, -1, &n->sum);
    p->at = NULL;
    n->npods--;
    drop_node(u, n);
}

bool usage_has_owner(const struct usage *u, const char *node, uint64_t owner)
{
    const struct store_entry *e = store_find(&u->nodes, node);
    const struct usage_node *n = e ? e->item : NULL;
    if (!n)
        return false;
    list_for_each(pos, tmp, &n->pods)
    {
        if (list_entry(pos, struct usage_pod, link)->owner == owner)
            return true;
    }
    return false;
}

const char *usage_pod_node(const struct usage_pod *p)
{
    return p->at ? p->at->entry->key : p->node;
}

void usage_fini(struct usage *u)
{
    for (struct store_entry *e = store_next(&u->nodes, NULL); e; e = store_next(&u->nodes, e))
        free_node(e->item);
    store_fini(&u->nodes);
    usage_anti_fini(u);
}
