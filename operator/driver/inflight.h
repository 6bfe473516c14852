/* SPDX-License-Identifier: Apache-2.0
 *
 * inflight: the limit of write requests in flight, over all jobs: a counting semaphore whose queue
 * is ordered by who registered first. So the oldest gang is created completely before a younger
 * one starts, and a thousand jobs use no more memory and API server capacity than a few. One
 * thread.
 */
#ifndef HVD_OPERATOR_DRIVER_INFLIGHT_H
#define HVD_OPERATOR_DRIVER_INFLIGHT_H

#include <stdint.h>

#include "core/base/clock.h"
#include "core/base/list.h"

struct inflight {
    int free;            /* number of free slots */
    uint64_t registered; /* number of users registered so far; the next user's number */
    bool calling;        /* inside inflight_release(): no recursion */
    struct list queue;   /* users that wait for a slot, sorted by number */
};

/* One user of the limit, an apply. call(): a slot is free. The callee acquires slots until
 * inflight_acquire() returns false or it has nothing more to send; in the second case it calls
 * inflight_unqueue(). */
struct inflight_user {
    void (*call)(void *arg);
    void *arg;
    uint64_t number;
    struct list node;
};

void inflight_init(struct inflight *f, int limit);
void inflight_register(struct inflight *f, struct inflight_user *user, void (*call)(void *arg),
                       void *arg);

/* True: one request may be sent; the caller calls inflight_release() when it has ended. False: the
 * user is in the queue now. */
bool inflight_acquire(struct inflight *f, struct inflight_user *user);
void inflight_release(struct inflight *f);

/* Do users wait for a slot? Then what is only for people to read is written later. */
static inline bool inflight_is_busy(const struct inflight *f)
{
    return !list_empty(&f->queue);
}

/* Must what is not urgent, and has waited since then (clock_ns()), wait for users of the limit? Not
 * for longer than INFLIGHT_YIELD in all. */
#define INFLIGHT_YIELD (5 * CLOCK_S)
static inline bool inflight_yields(const struct inflight *f, uint64_t since)
{
    return inflight_is_busy(f) && clock_ns() - since < INFLIGHT_YIELD;
}

/* Removes the user from the queue, if it waits there. */
void inflight_unqueue(struct inflight_user *user);

#endif
