/* SPDX-License-Identifier: Apache-2.0
 *
 * store: the objects of one cache by "namespace/name", as what was projected from them. Its own
 * part of an entry is about 48 bytes and the name. One owner (informer.c), one thread.
 */
#ifndef HVD_OPERATOR_API_STORE_H
#define HVD_OPERATOR_API_STORE_H

#include <stddef.h>
#include <stdint.h>

struct store_entry {
    struct store_entry *next;
    void *item;       /* the owner's */
    uint64_t hash;    /* of the key */
    uint64_t uid;     /* hashes: only asked whether they are the same as before */
    uint64_t version; /* of resourceVersion */
    uint32_t round;   /* the list in which it was seen last */
    char key[];
};

struct store {
    struct store_entry **slots;
    size_t nslots, n;
};

struct store_entry *store_find(const struct store *s, const char *key);

/* A new entry, all zero but its key, which must not be there yet; NULL when memory is out. */
struct store_entry *store_add(struct store *s, const char *key);

/* Takes it out and frees it; its item stays the caller's. */
void store_remove(struct store *s, struct store_entry *e);

/* One entry after the other in no order; e NULL for the first. The current one may be removed when
 * the next has been fetched. */
struct store_entry *store_next(const struct store *s, const struct store_entry *e);

/* Frees the entries, not their items. */
void store_fini(struct store *s);

#endif
