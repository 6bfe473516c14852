/* SPDX-License-Identifier: Apache-2.0
 *
 * store: see store.h. Chains in a table that doubles.
 */
#include "operator/api/store.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

#define SLOTS_MIN 16

static struct store_entry **slot_of(const struct store *s, uint64_t hash)
{
    return &s->slots[hash & (s->nslots - 1)];
}

struct store_entry *store_find(const struct store *s, const char *key)
{
    uint64_t hash = hash_str(key);
    if (s->nslots == 0)
        return NULL;
    struct store_entry *e = *slot_of(s, hash);
    while (e && (e->hash != hash || strcmp(e->key, key) != 0))
        e = e->next;
    return e;
}

static bool grow(struct store *s)
{
    struct store wide = {.nslots = s->nslots ? s->nslots * 2 : SLOTS_MIN, .n = s->n};
    wide.slots = calloc(wide.nslots, sizeof(struct store_entry *));
    if (!wide.slots)
        return false;
    for (size_t i = 0; i < s->nslots; i++) {
        for (struct store_entry *e = s->slots[i], *next; e; e = next) {
            struct store_entry **slot = slot_of(&wide, e->hash);
            next = e->next;
            e->next = *slot;
            *slot = e;
        }
    }
    free(s->slots);
    *s = wide;
    return true;
}

struct store_entry *store_add(struct store *s, const char *key)
{
    if (s->n >= s->nslots && !grow(s))
        return NULL;
    size_t len = strlen(key) + 1;
    struct store_entry *e = calloc(1, sizeof(*e) + len);
    if (!e)
        return NULL;
    memcpy(e->key, key, len);
    e->hash = hash_str(key);
    struct store_entry **slot = slot_of(s, e->hash);
    e->next = *slot;
    *slot = e;
    s->n++;
    return e;
}

void store_remove(struct store *s, struct store_entry *e)
{
    struct store_entry **at = slot_of(s, e->hash);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    s->n--;
    free(e);
}

struct store_entry *store_next(const struct store *s, const struct store_entry *e)
{
    if (e && e->next)
        return e->next;
    size_t i = e ? (e->hash & (s->nslots - 1)) + 1 : 0;
    for (; i < s->nslots; i++)
        if (s->slots[i])
            return s->slots[i];
    return NULL;
}

void store_fini(struct store *s)
{
    struct store_entry *e = store_next(s, NULL);
    while (e) {
        struct store_entry *gone = e;
        e = store_next(s, e);
        free(gone);
    }
    free(s->slots);
    *s = (struct store){0};
}
