/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor: see tensor.h.
 */
#include "core/negotiate/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

static size_t child_words(int nchildren)
{
    return ((size_t)nchildren + 63) / 64;
}

int tensors_init(struct tensors *t, uint32_t capacity, int nchildren)
{
    *t = (struct tensors){.capacity = capacity, .nchildren = nchildren, .nbuckets = 64};
    t->buckets = calloc(t->nbuckets, sizeof(struct tensor *));
    return t->buckets ? 0 : -ENOMEM;
}

static void tensor_free(struct tensor *e)
{
    claims_free(&e->claims);
    free(e->name);
    free(e->dim0);
    free(e->asked);
    free(e->child_ready);
    free(e);
}

void tensors_fini(struct tensors *t)
{
    for (uint32_t i = 0; i < t->npool; i++)
        if (t->pool[i])
            tensor_free(t->pool[i]);
    free(t->buckets);
    free(t->pool);
    free(t->holes);
    free(t->slots);
    *t = (struct tensors){0};
}

static struct tensor *find(const struct tensors *t, const char *name, uint64_t hash)
{
    struct tensor *e = t->buckets[hash & (t->nbuckets - 1)];
    while (e && (e->hash != hash || strcmp(e->name, name) != 0))
        e = e->next;
    return e;
}

struct tensor *tensors_find(const struct tensors *t, const char *name)
{
    return find(t, name, hash_str(name));
}

struct tensor *tensors_by_ticket(const struct tensors *t, uint64_t ticket)
{
    uint32_t index = (uint32_t)ticket;
    struct tensor *e = index < t->npool ? t->pool[index] : NULL;
    return e && e->ticket == ticket && e->state != TENSOR_IDLE ? e : NULL;
}

struct tensor *tensors_by_id(const struct tensors *t, uint64_t id)
{
    struct tensor *e = id_slot(id) < t->nslots ? t->slots[id_slot(id)] : NULL;
    return e && e->id == id ? e : NULL;
}

/* Adds buckets when they are crowded. Without memory the table stays as it is, only slower. */
static void grow_buckets(struct tensors *t)
{
    size_t n = t->nbuckets * 4;
    struct tensor **buckets = calloc(n, sizeof(*buckets));
    if (!buckets)
        return;
    for (uint32_t i = 0; i < t->npool; i++) {
        struct tensor *e = t->pool[i];
        if (!e)
            continue;
        e->next = buckets[e->hash & (n - 1)];
        buckets[e->hash & (n - 1)] = e;
    }
    free(t->buckets);
    t->buckets = buckets;
    t->nbuckets = n;
}

/* Makes room for one more entry in the pool. */
static int make_place(struct tensors *t, uint32_t *ret_index)
{
    if (t->nholes) {
        *ret_index = t->holes[--t->nholes];
        return 0;
    }
    if (t->npool == t->cap_pool) {
        uint32_t cap = t->cap_pool ? 2 * t->cap_pool : 64;
        struct tensor **pool = realloc(t->pool, cap * sizeof(*pool));
        if (!pool)
            return -ENOMEM;
        t->pool = pool;
        uint32_t *holes = realloc(t->holes, cap * sizeof(*holes));
        if (!holes)
            return -ENOMEM;
        t->holes = holes;
        t->cap_pool = cap;
    }
    *ret_index = t->npool;
    t->pool[t->npool++] = NULL;
    return 0;
}

struct tensor *tensors_get(struct tensors *t, const char *name)
{
    uint64_t hash = hash_str(name);
    struct tensor *e = find(t, name, hash);
    if (e)
        return e;
    uint32_t index;
    size_t words = child_words(t->nchildren);
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->name = strdup(name);
    e->child_ready = calloc(3 * words + 1, sizeof(uint64_t));
    if (!e->name || !e->child_ready || make_place(t, &index) < 0) {
        tensor_free(e);
        return NULL;
    }
    e->child_by_id = e->child_ready + words;
    e->child_mixed = e->child_by_id + words;
    e->hash = hash;
    e->index = index;
    list_init(&e->lru);
    list_init(&e->mine);
    list_init(&e->out);
    list_init(&e->partial);
    t->pool[index] = e;
    if (++t->count > 2 * t->nbuckets) {
        grow_buckets(t); /* also inserts the new entry, which is in the pool already */
        if (find(t, name, hash))
            return e;
    }
    e->next = t->buckets[hash & (t->nbuckets - 1)];
    t->buckets[hash & (t->nbuckets - 1)] = e;
    return e;
}

uint64_t tensors_ticket(struct tensors *t, struct tensor *e)
{
    if (++t->serial == 0)
        t->serial = 1;
    e->ticket = (uint64_t)t->serial << 32 | e->index;
    return e->ticket;
}

int tensors_set_id(struct tensors *t, struct tensor *e, uint64_t id)
{
    uint32_t slot = id_slot(id);
    if (slot >= t->capacity || id >> 32 == 0)
        return -EPROTO;
    if (slot >= t->nslots) {
        uint32_t n = t->nslots ? t->nslots : 64;
        while (n <= slot)
            n *= 2;
        struct tensor **slots = realloc(t->slots, n * sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        memset(slots + t->nslots, 0, (n - t->nslots) * sizeof(*slots));
        t->slots = slots;
        t->nslots = n;
    }
    if (t->slots[slot] && t->slots[slot] != e)
        return -EPROTO;
    tensors_drop_id(t, e);
    t->slots[slot] = e;
    e->id = id;
    return 0;
}

void tensors_drop_id(struct tensors *t, struct tensor *e)
{
    if (e->id)
        t->slots[id_slot(e->id)] = NULL;
    e->id = 0;
    e->by_id = false;
    list_remove(&e->lru);
}

void tensors_release(struct tensors *t, struct tensor *e)
{
    if (e->id || e->state != TENSOR_IDLE || e->owed || e->nready || e->since || e->asked)
        return;
    struct tensor **at = &t->buckets[e->hash & (t->nbuckets - 1)];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    t->pool[e->index] = NULL;
    t->holes[t->nholes++] = e->index;
    t->count--;
    list_remove(&e->mine);
    list_remove(&e->out);
    list_remove(&e->partial);
    tensor_free(e);
}

void tensor_forget_children(struct tensor *e, int nchildren)
{
    memset(e->child_ready, 0, 3 * child_words(nchildren) * sizeof(uint64_t));
    e->nready = 0;
    claims_free(&e->claims);
}
