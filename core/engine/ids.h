/* SPDX-License-Identifier: Apache-2.0
 *
 * ids: hash table from negotiation's id of a tensor to its slot: open addressing, linear probing.
 * Called with the progress lock held.
 */
#ifndef HVD_ENGINE_IDS_H
#define HVD_ENGINE_IDS_H

#include <stddef.h>
#include <stdint.h>

struct slot;

struct ids {
    struct ids_entry {
        uint64_t id;
        struct slot *slot; /* NULL: free */
    } * entries;
    size_t cap, count;
    uint64_t allocations;
};

void ids_fini(struct ids *ids);

/* Adds or replaces the entry of this id. -ENOMEM. */
int ids_put(struct ids *ids, uint64_t id, struct slot *slot);

struct slot *ids_get(const struct ids *ids, uint64_t id);

/* Removes the entry only if the id belongs to this slot. */
void ids_remove(struct ids *ids, uint64_t id, const struct slot *slot);

#endif
