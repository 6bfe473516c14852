/* SPDX-License-Identifier: Apache-2.0
 *
 * informer: a cache of one kind of object, each as the few fields that its owner wants, kept
 * current by list and watch (watch.h has the table). On the api's loop, one thread.
 *
 * What the owner hears is a consistent sequence: an object appears, changes and goes, also where
 * the cache had to list again, or an object was deleted and made anew under the same name
 * meanwhile.
 */
#ifndef HVD_OPERATOR_API_INFORMER_H
#define HVD_OPERATOR_API_INFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/json.h"
#include "operator/api/api.h"
#include "operator/api/request.h"
#include "operator/api/watch.h"

struct informer;

struct informer_config {
    struct api *api;
    struct resource resource;
    const char *namespace;       /* NULL: all of them */
    const char *labels, *fields; /* selectors, or NULL */
    int page;                    /* objects in a page of a list; 0: 500 */
    bool paged;                  /* never ask for a streamed list */
    int stream_ms;               /* a streamed list is whole by then; 0: 60,000 */
    /* object into a fresh *ret_item, of the owner's making. Negative: it is counted in
     * informer_counts.unread and left out of the cache; but -ENOMEM is tried again. */
    int (*parse)(void *arg, json_t *object, void **ret_item, struct err *err);
    void (*destroy)(void *item);
    /* before NULL: new; after NULL: gone. Both are valid during the call; after stays in the cache.
     */
    void (*changed)(void *arg, const char *key, const void *before, const void *after);
    /* The cache is whole: after the first list and after each later one. May be NULL. */
    void (*synced)(void *arg);
    void *arg;
};

struct informer_counts {
    uint64_t lists, follows, streams; /* begun */
    uint64_t events, bookmarks, gone, failures, unread;
};

/* The texts of config are copied. Begins at once; callbacks come from the loop. */
int informer_open(struct informer **ret, const struct informer_config *config, struct err *err);

/* The item of "namespace/name" ("name" where there is no namespace), NULL: none. */
const void *informer_get(const struct informer *inf, const char *key);
size_t informer_size(const struct informer *inf);

/* Calls back for each item; nothing may change meanwhile. */
void informer_each(const struct informer *inf,
                   void (*cb)(void *arg, const char *key, const void *item), void *arg);

/* True once it has been whole; it may lag behind when the server is away. */
bool informer_synced(const struct informer *inf);

/* The resourceVersion up to which the cache has everything; "" while it lists. */
const char *informer_version(const struct informer *inf);

/* The last request was refused for want of rights (403). */
bool informer_refused(const struct informer *inf);

/* What went wrong last, "" when the last thing went well. */
const char *informer_problem(const struct informer *inf);

enum watch_state informer_state(const struct informer *inf);
const struct informer_counts *informer_counts(const struct informer *inf);

/* Destroys the items without a callback. Not from one. NULL is fine. */
void informer_close(struct informer *inf);

#endif
