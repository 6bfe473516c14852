/* SPDX-License-Identifier: Apache-2.0
 *
 * informer: a cache of one kind of object, kept current by list and watch (state table: watch.h).
 * It keeps projections: the few fields of each object that its owner needs. On the api's loop, one
 * thread.
 *
 * The owner gets a consistent sequence of events: each object is added, changes and is deleted.
 * This also holds after a new list, and if an object was deleted and created again under the same
 * name meanwhile.
 */
#ifndef HVD_OPERATOR_API_INFORMER_H
#define HVD_OPERATOR_API_INFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/json.h"
#include "operator/api/api.h"
#include "operator/api/problem.h"
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
    int stream_ms;               /* limit for a streamed list; 0: 60,000 */
    /* Parses object into a new *ret_item, which destroy() frees. If it fails, the object is counted
     * in informer_counts.unread and left out of the cache; after -ENOMEM it is tried again. */
    int (*parse)(void *arg, json_t *object, void **ret_item, struct err *err);
    void (*destroy)(void *item);
    /* before NULL: added; after NULL: deleted. Both are valid during the call; after stays in the
     * cache. */
    void (*changed)(void *arg, const char *key, const void *before, const void *after);
    /* The cache has synced: after the first list and each later one. May be NULL. */
    void (*synced)(void *arg);
    void *arg;
};

struct informer_counts {
    uint64_t lists, follows, streams; /* requests: lists, watches, streamed lists */
    uint64_t events, bookmarks, gone, failures, unread;
};

/* Copies the texts of config. Starts at once; calls back only from the loop. */
int informer_open(struct informer **ret, const struct informer_config *config, struct err *err);

/* The item of "namespace/name" ("name" where there is no namespace), NULL: none. */
const void *informer_get(const struct informer *inf, const char *key);
size_t informer_size(const struct informer *inf);

/* Calls back for each item. The callback must not change the cache. */
void informer_each(const struct informer *inf,
                   void (*cb)(void *arg, const char *key, const void *item), void *arg);

/* True after the first complete list, also while the server is away and the cache is stale. */
bool informer_synced(const struct informer *inf);

/* The resourceVersion of the cache; "" unless the state is WATCH_FOLLOWING. */
const char *informer_version(const struct informer *inf);

/* True if the last request got 403: RBAC forbids to list or watch this kind. */
bool informer_refused(const struct informer *inf);

/* Why the last request failed. Never NULL; its text is "" if the request succeeded, or is a watch
 * that the server has accepted. */
const struct problem *informer_problem(const struct informer *inf);

enum watch_state informer_state(const struct informer *inf);
const struct informer_counts *informer_counts(const struct informer *inf);

/* Destroys the items without calling changed(). Must not be called from a callback. NULL is fine.
 */
void informer_close(struct informer *inf);

#endif
