/* SPDX-License-Identifier: Apache-2.0
 *
 * usage_anti: the anti-affinity of pods, by terms and node: the pods of one ReplicaSet have the
 * same terms, and all of them on one node keep others away from the same domain. See usage.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operator/driver/usage_private.h"

/* ---- terms ----------------------------------------------------------------------------------- */

static void unref(struct usage_terms *t)
{
    if (!t || --t->refs > 0)
        return;
    antiaffinity_fini(&t->anti);
    free(t);
}

static struct usage_terms *make_terms(struct usage *u, const char *text)
{
    struct store_entry *e = store_find(&u->anti, text);
    if (e)
        return e->item;
    struct usage_terms *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return NULL;
    fresh->refs = 1;
    e = antiaffinity_parse(text, &fresh->anti) == 0 ? store_add(&u->anti, text) : NULL;
    if (!e) {
        unref(fresh);
        return NULL;
    }
    list_init(&fresh->seats);
    fresh->entry = e;
    e->item = fresh;
    return fresh;
}

static void drop_terms(struct usage *u, struct usage_terms *t)
{
    if (!list_empty(&t->seats))
        return;
    store_remove(&u->anti, t->entry);
    t->entry = NULL;
    unref(t);
}

/* ---- pods ------------------------------------------------------------------------------------ */

/* A node has few different terms: one a pod at most. */
static struct usage_seat *make_seat(struct usage_terms *t, struct usage_node *node)
{
    list_for_each(pos, tmp, &node->seats)
    {
        struct usage_seat *s = list_entry(pos, struct usage_seat, on_node);
        if (s->terms == t)
            return s;
    }
    struct usage_seat *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return NULL;
    fresh->terms = t;
    fresh->node = node;
    list_init(&fresh->pods);
    list_append(&t->seats, &fresh->of_terms);
    list_append(&node->seats, &fresh->on_node);
    return fresh;
}

int usage_anti_add(struct usage *u, struct usage_node *node, struct usage_more *more)
{
    struct usage_terms *t = make_terms(u, more->anti);
    more->seat = t ? make_seat(t, node) : NULL;
    if (!more->seat) {
        if (t)
            drop_terms(u, t);
        return -ENOMEM;
    }
    list_append(&more->seat->pods, &more->link);
    free(more->anti); /* the table's key is the same text */
    more->anti = NULL;
    return 0;
}

void usage_anti_remove(struct usage *u, struct usage_more *more)
{
    struct usage_seat *s = more->seat;
    if (!s)
        return;
    list_remove(&more->link);
    more->seat = NULL;
    if (!list_empty(&s->pods))
        return;
    list_remove(&s->of_terms);
    list_remove(&s->on_node);
    drop_terms(u, s->terms);
    free(s);
}

void usage_anti_fini(struct usage *u)
{
    for (struct store_entry *e = store_next(&u->anti, NULL); e; e = store_next(&u->anti, e)) {
        struct usage_terms *t = e->item;
        list_for_each(pos, tmp, &t->seats)
        {
            free(list_entry(pos, struct usage_seat, of_terms));
        }
        unref(t);
    }
    store_fini(&u->anti);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

void usage_antis_fini(struct usage_antis *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->list[i].nodes);
    for (int i = 0; i < a->nterms; i++)
        unref(a->terms[i]);
    free(a->terms);
    free(a->list);
    free(a->keepers);
    free(a->names);
    *a = (struct usage_antis){0};
}

static const char *name_of(const struct usage_seat *s)
{
    return list_first(&s->pods, struct usage_more, link)->name;
}

/* Allocates what *ret will hold at most. */
static int make_room(const struct usage *u, struct usage_antis *ret)
{
    size_t all = 0, seats = 0, bytes = 0;
    for (struct store_entry *e = store_next(&u->anti, NULL); e; e = store_next(&u->anti, e)) {
        const struct usage_terms *t = e->item;
        all += (size_t)t->anti.n;
        list_for_each(pos, tmp, &t->seats)
        {
            seats++;
            bytes += strlen(name_of(list_entry(pos, struct usage_seat, of_terms))) + 1;
        }
    }
    ret->terms = calloc(u->anti.n + 1, sizeof(struct usage_terms *));
    ret->list = all < INT32_MAX ? calloc(all + 1, sizeof(*ret->list)) : NULL;
    ret->keepers = malloc((seats + 1) * sizeof(*ret->keepers));
    ret->names = malloc(bytes + 1);
    return ret->terms && ret->list && ret->keepers && ret->names ? 0 : -ENOMEM;
}

/* Where the next keepers and names of a snapshot are stored. */
struct place {
    struct fit_keeper *keeper;
    char *name;
};

static void take(struct usage_terms *t, struct usage_antis *a, struct place *p)
{
    struct fit_keeper *first = p->keeper;
    list_for_each(pos, tmp, &t->seats)
    {
        const struct usage_seat *s = list_entry(pos, struct usage_seat, of_terms);
        size_t size = strlen(name_of(s)) + 1;
        if (!s->node->there)
            continue;
        memcpy(p->name, name_of(s), size);
        *p->keeper++ = (struct fit_keeper){s->node->index, p->name};
        p->name += size;
    }
    if (p->keeper == first)
        return;
    t->refs++;
    a->terms[a->nterms++] = t;
    for (int i = 0; i < t->anti.n; i++) {
        a->by_namespace |= t->anti.all[i].namespace_selector.n > 0;
        a->list[a->n++] = (struct fit_anti){
            .term = &t->anti.all[i], .keepers = first, .n = (int)(p->keeper - first)};
    }
}

int usage_anti(const struct usage *u, struct usage_antis *ret)
{
    struct usage_antis all = {0};
    if (make_room(u, &all) < 0) {
        usage_antis_fini(&all);
        return -ENOMEM;
    }
    struct place p = {all.keepers, all.names};
    for (struct store_entry *e = store_next(&u->anti, NULL); e; e = store_next(&u->anti, e))
        take(e->item, &all, &p);
    *ret = all;
    return 0;
}
