/* SPDX-License-Identifier: Apache-2.0
 *
 * ids: see ids.h.
 */
#include "core/engine/ids.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/hash.h"

void ids_fini(struct ids *ids)
{
    free(ids->entries);
    *ids = (struct ids){0};
}

static struct ids_entry *place(const struct ids *ids, uint64_t id)
{
    size_t i = hash_mix(id) & (ids->cap - 1);
    while (ids->entries[i].slot && ids->entries[i].id != id)
        i = (i + 1) & (ids->cap - 1);
    return &ids->entries[i];
}

static int grow(struct ids *ids)
{
    struct ids old = *ids;
    size_t cap = old.cap ? 2 * old.cap : 1024;
    struct ids_entry *entries = calloc(cap, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    ids->allocations++;
    ids->entries = entries;
    ids->cap = cap;
    for (size_t i = 0; i < old.cap; i++) {
        if (old.entries[i].slot)
            *place(ids, old.entries[i].id) = old.entries[i];
    }
    free(old.entries);
    return 0;
}

int ids_put(struct ids *ids, uint64_t id, struct slot *slot)
{
    if (2 * (ids->count + 1) > ids->cap && grow(ids) < 0)
        return -ENOMEM;
    struct ids_entry *e = place(ids, id);
    ids->count += e->slot == NULL;
    e->id = id;
    e->slot = slot;
    return 0;
}

struct slot *ids_get(const struct ids *ids, uint64_t id)
{
    return ids->cap ? place(ids, id)->slot : NULL;
}

void ids_remove(struct ids *ids, uint64_t id, const struct slot *slot)
{
    if (!ids->cap)
        return;
    size_t mask = ids->cap - 1;
    size_t hole = (size_t)(place(ids, id) - ids->entries);
    if (!ids->entries[hole].slot || ids->entries[hole].slot != slot)
        return;
    ids->entries[hole].slot = NULL;
    ids->count--;
    /* Entries behind the hole that belong at or before it move up. */
    for (size_t i = (hole + 1) & mask; ids->entries[i].slot; i = (i + 1) & mask) {
        size_t home = hash_mix(ids->entries[i].id) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        ids->entries[hole] = ids->entries[i];
        ids->entries[i].slot = NULL;
        hole = i;
    }
}
