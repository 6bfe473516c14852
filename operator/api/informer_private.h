/* SPDX-License-Identifier: Apache-2.0
 *
 * informer_private: what informer.c (states, requests) and informer_cache.c (objects) share.
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
    uint32_t round; /* of the list that is under way or was last */
    bool synced;
    bool refused; /* the last request, with 403 */

    struct api_call *call;
    struct loop_timer pause, patience; /* patience: for the end of a streamed list */
    struct list_parser parser;
    struct lines lines;
    struct page page; /* version: what the watch goes on from */
    bool no_streams;  /* this server has none */
    bool no_pages;    /* its tokens age faster than we read: all in one */
    bool gone;        /* an event said 410 */
    bool progress;    /* this request has brought something */
    uint64_t opened_at;
    unsigned failures; /* in a row */
    long retry_after_s;
    struct err err;
};

/* One object of a list or an event. -ENOMEM: the cache is behind. */
int informer_put(struct informer *inf, json_t *object, struct err *err);
int informer_drop(struct informer *inf, json_t *object, struct err *err);

/* What was not seen in this round is gone. */
void informer_sweep(struct informer *inf);

void informer_cache_fini(struct informer *inf);

#endif
