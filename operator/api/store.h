/* SPDX-License-Identifier: Apache-2.0
 *
 * store: a hash table of a cache's projections by "namespace/name". An entry costs about 48 bytes
 * and the key. One owner, one thread.
 */
#ifndef HVD_OPERATOR_API_STORE_H
#define HVD_OPERATOR_API_STORE_H

#include <stddef.h>
#include <stdint.h>

struct store_entry {
    struct store_entry *next;
    void *item;       /* owned by the table's owner */
    uint64_t hash;    /* hash of the key */
    uint64_t uid;     /* hash of the uid, only compared for equality */
    uint64_t version; /* hash of the resourceVersion, only compared for equality */
    uint32_t round;   /* number of the last list that contained it */
    char key[];
};

struct store {
    struct store_entry **slots;
    size_t nslots, n;
};

struct store_entry *store_find(const struct store *s, const char *key);

/* Adds an entry, zeroed but for its key, which must not exist yet. NULL: no memory. */
struct store_entry *store_add(struct store *s, const char *key);

/* Removes and frees the entry, but not its item. */
void store_remove(struct store *s, struct store_entry *e);

/* Iterates in no order; e NULL: the first. The caller may remove an entry once it has fetched the
 * next. */
struct store_entry *store_next(const struct store *s, const struct store_entry *e);

/* Frees the entries, not their items. */
void store_fini(struct store *s);

#endif
