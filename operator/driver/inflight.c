/* SPDX-License-Identifier: Apache-2.0
 *
 * inflight: see inflight.h.
 */
#include "operator/driver/inflight.h"

void inflight_init(struct inflight *f, int limit)
{
    *f = (struct inflight){.free = limit};
    list_init(&f->queue);
}

void inflight_register(struct inflight *f, struct inflight_user *user, void (*call)(void *arg),
                       void *arg)
{
    *user = (struct inflight_user){.call = call, .arg = arg, .number = f->registered++};
    list_init(&user->node);
}

static void enqueue(struct inflight *f, struct inflight_user *user)
{
    struct list *after = f->queue.prev;
    while (after != &f->queue &&
           list_entry(after, struct inflight_user, node)->number > user->number)
        after = after->prev;
    list_append(after->next, &user->node); /* inserts in front of after->next */
}

bool inflight_acquire(struct inflight *f, struct inflight_user *user)
{
    bool first = list_empty(&f->queue) ||
                 list_first(&f->queue, struct inflight_user, node)->number >= user->number;
    if (f->free > 0 && first) {
        f->free--;
        return true;
    }
    if (list_empty(&user->node))
        enqueue(f, user);
    return false;
}

/* The loop ends, because each callee takes all free slots or leaves the queue. */
void inflight_release(struct inflight *f)
{
    f->free++;
    if (f->calling)
        return;
    f->calling = true;
    while (f->free > 0 && !list_empty(&f->queue)) {
        struct inflight_user *user = list_first(&f->queue, struct inflight_user, node);
        user->call(user->arg);
    }
    f->calling = false;
}

void inflight_unqueue(struct inflight_user *user)
{
    list_remove(&user->node);
}
