/* SPDX-License-Identifier: Apache-2.0
 *
 * fusion: see fusion.h.
 */
#include "core/negotiate/fusion.h"

#include <stdlib.h>
#include <string.h>

#include "core/negotiate/signature.h"

/* A group in flight. A member is counted once every rank has submitted it. */
struct group {
    struct group *next;
    uint64_t hash;
    uint32_t size, seen;
    char *failed; /* the error text, once a member has failed */
    int code;     /* error number of that failure */
    struct tensor **members;
    uint32_t n, cap;
};

void fusion_init(struct fusion *f, uint64_t limit, const struct fusion_ops *ops, void *ctx)
{
    *f = (struct fusion){.limit = limit, .ops = ops, .ctx = ctx};
}

static void group_free(struct group *g)
{
    free(g->failed);
    free(g->members);
    free(g);
}

void fusion_reset(struct fusion *f)
{
    while (f->groups) {
        struct group *g = f->groups;
        f->groups = g->next;
        group_free(g);
    }
    for (int i = 0; i < f->nbuckets; i++) {
        list_for_each(at, next, &f->buckets[i].tensors) list_remove(at);
    }
    f->nbuckets = 0;
}

void fusion_flush(struct fusion *f, int i, enum flush_why why)
{
    struct bucket *b = &f->buckets[i];
    f->ops->batch(f->ctx, &b->tensors, b->n, why);
    struct bucket *last = &f->buckets[--f->nbuckets];
    if (b == last)
        return;
    *b = *last;
    list_init(&b->tensors);
    list_for_each(at, next, &last->tensors)
    {
        list_remove(at);
        list_append(&b->tensors, at);
    }
}

static int find_bucket(const struct fusion *f, const struct signature *key)
{
    for (int i = 0; i < f->nbuckets; i++)
        if (signature_fusable(&f->buckets[i].key, key))
            return i;
    return -1;
}

/* Finds or creates the bucket for such a tensor, with room for more bytes. Returns its index. */
static int open_bucket(struct fusion *f, const struct signature *key, uint64_t bytes, uint64_t now)
{
    int i = find_bucket(f, key);
    if (i >= 0 && f->buckets[i].bytes + bytes > f->limit) {
        fusion_flush(f, i, FLUSH_FULL);
        i = -1;
    }
    if (i >= 0)
        return i;
    if (f->nbuckets == FUSION_BUCKETS)
        fusion_flush(f, 0, FLUSH_FULL);
    i = f->nbuckets++;
    f->buckets[i] = (struct bucket){.key = *key, .since = now};
    list_init(&f->buckets[i].tensors);
    return i;
}

static void put(struct fusion *f, int i, struct tensor *e)
{
    struct bucket *b = &f->buckets[i];
    list_remove(&e->out);
    list_append(&b->tensors, &e->out);
    b->n++;
    b->bytes += signature_bytes(&e->want);
    b->prioritized = b->prioritized || e->prioritized;
}

static void add_one(struct fusion *f, struct tensor *e, uint64_t now)
{
    if (e->want.kind != HVD_ALLREDUCE) {
        struct list alone;
        list_init(&alone);
        list_remove(&e->out);
        list_append(&alone, &e->out);
        f->ops->batch(f->ctx, &alone, 1, FLUSH_FULL);
        return;
    }
    int i = open_bucket(f, &e->want, signature_bytes(&e->want), now);
    put(f, i, e);
    if (f->buckets[i].bytes >= f->limit)
        fusion_flush(f, i, FLUSH_FULL);
}

static int by_index(const void *a, const void *b)
{
    const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;
    if (x->want.group_index != y->want.group_index)
        return x->want.group_index < y->want.group_index ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Releases a complete group. If it fits it stays in one batch, which may have other tensors,
 * too. A larger group, or one with several dtypes, goes out at once in as many batches as
 * needed. */
static void release(struct fusion *f, struct group *g, uint64_t now)
{
    uint64_t bytes = 0;
    bool alike = true;
    qsort(g->members, g->n, sizeof(struct tensor *), by_index);
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t more = signature_bytes(&g->members[i]->want);
        bytes = bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
        alike = alike && signature_fusable(&g->members[0]->want, &g->members[i]->want);
    }
    if (alike && bytes <= f->limit) {
        int i = open_bucket(f, &g->members[0]->want, bytes, now);
        for (uint32_t k = 0; k < g->n; k++)
            put(f, i, g->members[k]);
        if (f->buckets[i].bytes >= f->limit)
            fusion_flush(f, i, FLUSH_FULL);
        return;
    }
    while (f->nbuckets)
        fusion_flush(f, 0, FLUSH_FULL);
    for (uint32_t k = 0; k < g->n; k++)
        add_one(f, g->members[k], now);
    while (f->nbuckets)
        fusion_flush(f, 0, FLUSH_FULL);
}

static struct group *find_group(struct fusion *f, const struct signature *sig)
{
    struct group *g = f->groups;
    while (g && (g->hash != sig->group_hash || g->size != sig->group_size))
        g = g->next;
    if (g)
        return g;
    g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->hash = sig->group_hash;
    g->size = sig->group_size;
    g->next = f->groups;
    f->groups = g;
    return g;
}

/* Counts one member; the last member ends the group. */
static void group_seen(struct fusion *f, struct group *g, uint64_t now)
{
    if (++g->seen < g->size)
        return;
    if (!g->failed)
        release(f, g, now);
    struct group **at = &f->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    group_free(g);
}

int fusion_add(struct fusion *f, struct tensor *e, uint64_t now)
{
    if (e->want.group_size == 0) {
        add_one(f, e, now);
        return 0;
    }
    struct group *g = find_group(f, &e->want);
    if (!g)
        return -ENOMEM;
    if (g->failed) {
        f->ops->fail(f->ctx, e, g->code, g->failed);
        group_seen(f, g, now);
        return 0;
    }
    if (g->n == g->cap) {
        uint32_t cap = g->cap ? 2 * g->cap : 8;
        struct tensor **members = realloc(g->members, cap * sizeof(*members));
        if (!members)
            return -ENOMEM;
        g->members = members;
        g->cap = cap;
    }
    list_remove(&e->out);
    g->members[g->n++] = e;
    group_seen(f, g, now);
    return 0;
}

int fusion_failed(struct fusion *f, const struct signature *sig, int code, const char *text)
{
    if (sig->group_size == 0)
        return 0;
    struct group *g = find_group(f, sig);
    if (!g)
        return -ENOMEM;
    if (!g->failed) {
        g->failed = strdup(text);
        if (!g->failed)
            return -ENOMEM;
        g->code = code;
        for (uint32_t i = 0; i < g->n; i++)
            f->ops->fail(f->ctx, g->members[i], code, text);
        g->n = 0;
    }
    group_seen(f, g, 0);
    return 0;
}

void fusion_prioritize(struct fusion *f, const struct tensor *e)
{
    int i = e->want.kind == HVD_ALLREDUCE ? find_bucket(f, &e->want) : -1;
    if (i < 0)
        return;
    list_for_each(at, next, &f->buckets[i].tensors)
    {
        if (at == &e->out)
            f->buckets[i].prioritized = true;
    }
}
