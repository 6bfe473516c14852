/* SPDX-License-Identifier: Apache-2.0
 *
 * join: hvd_join(), for a rank whose data has run out. Until all ranks have called it, this rank
 * contributes neutral elements to what the others submit, in the world and in each of its sets.
 *
 * Negotiation (negotiate/join.c) says what is wanted, in the driver's thread. The thread that is in
 * hvd_join() submits it, like any other operation, and frees it when it is done.
 */
#ifndef HVD_ENGINE_JOIN_H
#define HVD_ENGINE_JOIN_H

#include <pthread.h>
#include <stdbool.h>

#include "core/base/err.h"
#include "core/negotiate/negotiate.h"

struct circle;
struct engine;
struct join_want;

struct join {
    /* Held by hvd_commit(), by hvd_set_add() and the hvd_set_remove() of its sets, and when
     * hvd_join() begins. So a boundary that has begun ends before, and ranks that share their
     * tables of sets at a boundary have the same ones. Before sets.calls. */
    pthread_mutex_t boundaries;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct join_want *first, **end; /* what is wanted and not yet submitted */
    bool over;
    int last; /* the rank that joined last, as the user sees it; -1: another rank knows it */
    enum negotiate_join state; /* of this rank; with the progress lock held */
};

void join_init(struct join *j);
void join_fini(struct join *j);

/* Negotiation's callbacks, of a circle. With the progress lock held. */
void join_wanted(struct circle *c, const char *name, const struct signature *sig);
void join_is_over(struct circle *c, int last);

/* The circle has a new negotiation: if this rank has joined, tells it. With the progress lock held.
 */
void join_go_on(struct circle *c);

/* hvd_join(). */
int join_run(struct engine *e, struct err *err);

#endif
