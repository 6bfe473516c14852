/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: see usage.h.
 */
#include "operator/driver/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/driver/usage_pod.h"

struct usage_node {
    struct store_entry *entry;
    struct resources sum; /* has the kinds that the node offers */
    struct list pods;     /* usage_pod.link */
    size_t npods;
    bool there;   /* the node exists */
    bool unknown; /* no memory for the sum: the node counts as full */
    int index;    /* set by usage_get() */
};

/* ---- anti-affinity --------------------------------------------------------------------------- */

/* The same terms are stored once, however many pods have them. */
struct usage_anti {
    struct store_entry *entry;
    struct antiaffinity terms;
    struct list pods; /* usage_more.link */
};

static int anti_add(struct usage *u, struct usage_more *more)
{
    struct store_entry *e = store_find(&u->anti, more->anti);
    if (!e) {
        struct usage_anti *fresh = calloc(1, sizeof(*fresh));
        if (!fresh || antiaffinity_parse(more->anti, &fresh->terms) < 0) {
            free(fresh);
            return -ENOMEM;
        }
        e = store_add(&u->anti, more->anti);
        if (!e) {
            antiaffinity_fini(&fresh->terms);
            free(fresh);
            return -ENOMEM;
        }
        list_init(&fresh->pods);
        fresh->entry = e;
        e->item = fresh;
    }
    more->at = e->item;
    list_append(&more->at->pods, &more->link);
    free(more->anti); /* the table's key is the same text */
    more->anti = NULL;
    return 0;
}

static void anti_free(struct usage_anti *a)
{
    antiaffinity_fini(&a->terms);
    free(a);
}

static void anti_remove(struct usage *u, struct usage_more *more)
{
    struct usage_anti *a = more->at;
    if (!a)
        return;
    list_remove(&more->link);
    more->at = NULL;
    if (!list_empty(&a->pods))
        return;
    store_remove(&u->anti, a->entry);
    anti_free(a);
}

void usage_antis_fini(struct usage_antis *a)
{
    for (int i = 0; i < a->nterms; i++)
        antiaffinity_fini(&a->terms[i]);
    free(a->terms);
    free(a->list);
    free(a->names);
    *a = (struct usage_antis){0};
}

/* Allocates what *ret will hold at most. */
static int anti_room(const struct usage *u, struct usage_antis *ret)
{
    size_t terms = 0, all = 0, bytes = 0;
    for (struct store_entry *e = store_next(&u->anti, NULL); e; e = store_next(&u->anti, e)) {
        const struct usage_anti *a = e->item;
        terms++;
        list_for_each(pos, tmp, &a->pods)
        {
            all += (size_t)a->terms.n;
            bytes += strlen(list_entry(pos, struct usage_more, link)->name) + 1;
        }
    }
    ret->terms = calloc(terms + 1, sizeof(*ret->terms));
    ret->list = all < INT32_MAX ? malloc((all + 1) * sizeof(*ret->list)) : NULL;
    ret->names = malloc(bytes + 1);
    return ret->terms && ret->list && ret->names ? 0 : -ENOMEM;
}

/* Appends the terms of one entry, all pods of a term one after the other. Returns the end of the
 * names. */
static char *take_antis(const struct usage_anti *a, const struct antiaffinity *terms, char *names,
                        struct usage_antis *ret)
{
    char *end = names;
    for (int i = 0; i < terms->n; i++) {
        end = names;
        list_for_each(pos, tmp, &a->pods)
        {
            const struct usage_more *m = list_entry(pos, struct usage_more, link);
            size_t size = strlen(m->name) + 1;
            if (!m->pod->at->there)
                continue;
            memcpy(end, m->name, size);
            ret->list[ret->n++] = (struct fit_anti){&terms->all[i], m->pod->at->index, end};
            end += size;
        }
    }
    return end;
}

int usage_anti(const struct usage *u, struct usage_antis *ret)
{
    struct usage_antis all = {0};
    int rc = anti_room(u, &all);
    char *names = all.names;
    for (struct store_entry *e = store_next(&u->anti, NULL); e && all.terms && rc == 0;
         e = store_next(&u->anti, e)) {
        rc = antiaffinity_parse(e->key, &all.terms[all.nterms]);
        if (rc == 0)
            names = take_antis(e->item, &all.terms[all.nterms++], names, &all);
    }
    if (rc < 0) {
        usage_antis_fini(&all);
        return -ENOMEM;
    }
    *ret = all;
    return 0;
}

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
    if (more && more->anti && (!(more->name = strdup(name)) || anti_add(u, more) < 0)) {
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
        anti_remove(u, p->more);
    list_remove(&p->link);
    usage_pod_count(p, -1, &n->sum);
    p->at = NULL;
    n->npods--;
    drop_node(u, n);
}

void usage_fini(struct usage *u)
{
    for (struct store_entry *e = store_next(&u->nodes, NULL); e; e = store_next(&u->nodes, e))
        free_node(e->item);
    for (struct store_entry *e = store_next(&u->anti, NULL); e; e = store_next(&u->anti, e))
        anti_free(e->item);
    store_fini(&u->nodes);
    store_fini(&u->anti);
}
