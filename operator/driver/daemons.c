/* SPDX-License-Identifier: Apache-2.0
 *
 * daemons: see daemons.h.
 */
#include "operator/driver/daemons.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct daemons_set {
    struct list link; /* in daemons.sets */
    const struct daemonset *set;
    uint64_t owner; /* usage_owner() of its pods */
};

struct daemons_node {
    struct store_entry *entry;
    const struct node *node;
    uint64_t until;    /* clock_ns() */
    struct list lacks; /* struct await.on_node */
    int n;
};

/* A pod that its node lacks, and that counts as if it were there. */
struct await {
    struct list on_node, due; /* due: in daemons.awaited */
    struct daemons_node *node;
    const struct daemons_set *of;
    struct usage_pod *pod;
};

void daemons_init(struct daemons *d, struct usage *usage)
{
    *d = (struct daemons){.usage = usage};
    list_init(&d->sets);
    list_init(&d->awaited);
}

/* ---- one pod --------------------------------------------------------------------------------- */

static void drop(struct daemons *d, struct await *a)
{
    usage_remove(d->usage, a->pod);
    usage_pod_destroy(a->pod);
    list_remove(&a->due);
    list_remove(&a->on_node);
    a->node->n--;
    free(a);
}

static struct usage_pod *make_pod(struct daemons *d, const struct daemons_set *of,
                                  const struct daemons_node *n)
{
    struct pod pod = of->set->pod;
    pod.node = n->entry->key;
    struct usage_pod *p = usage_pod_make(&pod);
    if (p && usage_add(d->usage, p, pod.name) < 0) {
        usage_pod_destroy(p);
        p = NULL;
    }
    return p;
}

static void enqueue(struct daemons *d, struct await *a)
{
    struct list *after = d->awaited.prev;
    while (after != &d->awaited &&
           list_entry(after, struct await, due)->node->until > a->node->until)
        after = after->prev;
    list_append(after->next, &a->due); /* inserts in front of after->next */
}

static int add(struct daemons *d, const struct daemons_set *of, struct daemons_node *n)
{
    struct await *a = calloc(1, sizeof(*a));
    if (!a || !(a->pod = make_pod(d, of, n))) {
        free(a);
        return -ENOMEM;
    }
    a->node = n;
    a->of = of;
    list_append(&n->lacks, &a->on_node);
    enqueue(d, a);
    n->n++;
    return 0;
}

static struct await *find(const struct daemons_node *n, const struct daemons_set *of)
{
    list_for_each(pos, tmp, &n->lacks)
    {
        struct await *a = list_entry(pos, struct await, on_node);
        if (a->of == of)
            return a;
    }
    return NULL;
}

/* Compares what the node lacks of one DaemonSet with what is awaited. */
static int look(struct daemons *d, const struct daemons_set *of, struct daemons_node *n,
                uint64_t now)
{
    bool lacks = n->until > now && daemonset_runs_on(of->set, n->node) &&
                 !usage_has_owner(d->usage, n->entry->key, of->owner);
    struct await *a = find(n, of);
    if (a && !lacks)
        drop(d, a);
    return !a && lacks && n->n < DAEMONS_A_NODE ? add(d, of, n) : 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct daemons_node *make_node(struct daemons *d, const char *name)
{
    struct store_entry *e = store_find(&d->nodes, name);
    if (e)
        return e->item;
    struct daemons_node *fresh = calloc(1, sizeof(*fresh));
    e = fresh ? store_add(&d->nodes, name) : NULL;
    if (!e) {
        free(fresh);
        return NULL;
    }
    list_init(&fresh->lacks);
    fresh->entry = e;
    e->item = fresh;
    return fresh;
}

static void drop_node(struct daemons *d, struct daemons_node *n)
{
    list_for_each(pos, tmp, &n->lacks)
    {
        drop(d, list_entry(pos, struct await, on_node));
    }
    store_remove(&d->nodes, n->entry);
    free(n);
}

int daemons_note_node(struct daemons *d, const char *name, const struct node *node, uint64_t until,
                      uint64_t now)
{
    struct store_entry *e = store_find(&d->nodes, name);
    int rc = 0;
    if (!node) {
        if (e)
            drop_node(d, e->item);
        return 0;
    }
    struct daemons_node *n = make_node(d, name);
    if (!n)
        return -ENOMEM;
    n->node = node;
    if (!n->until) /* the order of what is awaited depends on it */
        n->until = until;
    list_for_each(pos, tmp, &d->sets)
    {
        if (look(d, list_entry(pos, struct daemons_set, link), n, now) < 0)
            rc = -ENOMEM;
    }
    return rc;
}

/* ---- DaemonSets ------------------------------------------------------------------------------ */

static struct daemons_set *find_set(const struct daemons *d, uint64_t owner)
{
    list_for_each(pos, tmp, &d->sets)
    {
        struct daemons_set *s = list_entry(pos, struct daemons_set, link);
        if (s->owner == owner)
            return s;
    }
    return NULL;
}

static void drop_set(struct daemons *d, struct daemons_set *s)
{
    for (struct store_entry *e = store_next(&d->nodes, NULL); e; e = store_next(&d->nodes, e)) {
        struct await *a = find(e->item, s);
        if (a)
            drop(d, a);
    }
    list_remove(&s->link);
    d->nsets--;
    free(s);
}

static int add_set(struct daemons *d, const struct daemonset *set, uint64_t now)
{
    int rc = 0;
    if (d->nsets == DAEMONS_MAX)
        return 0;
    struct daemons_set *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->set = set;
    s->owner = usage_owner(set->uid);
    list_append(&d->sets, &s->link);
    d->nsets++;
    for (struct store_entry *e = store_next(&d->nodes, NULL); e; e = store_next(&d->nodes, e))
        if (look(d, s, e->item, now) < 0)
            rc = -ENOMEM;
    return rc;
}

int daemons_note_set(struct daemons *d, const struct daemonset *was, const struct daemonset *is,
                     uint64_t now, bool *ret_changed)
{
    struct daemons_set *s = was ? find_set(d, usage_owner(was->uid)) : NULL;
    *ret_changed = !was || !is || strcmp(was->uid, is->uid) != 0 ||
                   was->generation != is->generation || was->deleting != is->deleting;
    if (!*ret_changed) {
        if (s)
            s->set = is;
        return 0;
    }
    if (s)
        drop_set(d, s);
    return is ? add_set(d, is, now) : 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

int daemons_note_pod(struct daemons *d, const char *node, uint64_t owner, uint64_t now)
{
    const struct daemons_set *s = owner ? find_set(d, owner) : NULL;
    struct store_entry *e = s ? store_find(&d->nodes, node) : NULL;
    return e ? look(d, s, e->item, now) : 0;
}

uint64_t daemons_expire(struct daemons *d, uint64_t now)
{
    list_for_each(pos, tmp, &d->awaited)
    {
        struct await *a = list_entry(pos, struct await, due);
        if (a->node->until > now)
            return a->node->until;
        drop(d, a);
    }
    return UINT64_MAX;
}

void daemons_fini(struct daemons *d)
{
    for (struct store_entry *e = store_next(&d->nodes, NULL); e; e = store_next(&d->nodes, e)) {
        struct daemons_node *n = e->item;
        list_for_each(pos, tmp, &n->lacks)
        {
            drop(d, list_entry(pos, struct await, on_node));
        }
        free(n);
    }
    store_fini(&d->nodes);
    list_for_each(pos, tmp, &d->sets)
    {
        free(list_entry(pos, struct daemons_set, link));
    }
    list_init(&d->sets);
}
