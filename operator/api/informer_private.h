/* SPDX-License-Identifier: Apache-2.0
 *
 * informer_private: shared by informer.c (states, requests) and informer_cache.c (objects).
 */
#ifndef HVD_OPERATOR_API_INFORMER_PRIVATE_H
#define HVD_OPERATOR_API_INFORMER_PRIVATE_H

#include "operator/api/list_parser.h"
#include "operator/api/event.h"
#include "operator/api/informer.h"
#include "operator/api/lines.h"
#include "operator/api/store.h"

struct informer {
    struct informer_config config; /* its texts are owned */
    struct informer_counts counts;
    enum watch_state state;
    struct store store;
    uint32_t round; /* number of the current or last list */
    bool synced;
    bool refused; /* the last request got 403 */

    struct api_call *call;
    struct loop_timer pause, patience; /* patience: limit for a streamed list */
    struct list_parser parser;
    struct lines lines;
    struct page page; /* page.version: where the watch continues */
    bool no_streams;  /* this server does not support streamed lists */
    bool no_pages;    /* continue tokens expire before the list ends: list without pages */
    bool gone;        /* the watch sent the error 410 */
    bool progress;    /* this request delivered something new */
    uint64_t opened_at;
    /* Failures in a row: of requests that cost the server little, and of others (lists that were
     * cut, 410, which means a new list). Counted apart: an outage is no reason to leave the cache
     * as it is for long once the server answers again. */
    unsigned failures, costly;
    long retry_after_s;
    struct err err;
    struct problem problem; /* of the last request that ended; none after a success */
};

/* informer_put() adds or changes the object of a list item or an event, informer_drop() deletes it.
 * A failure leaves the cache incomplete: the caller fails the list or watch, which is repeated. */
int informer_put(struct informer *inf, json_t *object, struct err *err);
int informer_drop(struct informer *inf, json_t *object, struct err *err);

/* Deletes all objects that the list of this round did not contain. */
void informer_sweep(struct informer *inf);

void informer_cache_fini(struct informer *inf);

#endif
