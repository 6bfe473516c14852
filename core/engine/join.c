/* SPDX-License-Identifier: Apache-2.0
 *
 * join: see join.h.
 */
#include "core/engine/join.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/neutral.h"
#include "core/engine/set_call.h"

#define LOOK_MS     5             /* how often the joined rank looks without news */
#define FAREWELL_NS (5 * CLOCK_S) /* the end may arrive after the farewell of another rank */

struct join_want {
    struct join_want *next;
    int set;
    struct signature sig;
    char name[HVD_MAX_NAME + 1];
};

/* An operation that this thread has submitted. */
struct served {
    struct served *next;
    hvd_handle handle;
    struct slot *slot;
    struct neutral neutral;
};

struct serving {
    struct engine *e;
    struct served *first;
    struct neutral_gpu gpu;
    enum negotiate_join state;
};

void join_init(struct join *j)
{
    pthread_condattr_t monotonic;
    j->end = &j->first;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void drop_wants(struct join *j)
{
    for (struct join_want *w = j->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    j->first = NULL;
    j->end = &j->first;
}

void join_fini(struct join *j)
{
    drop_wants(j);
    pthread_cond_destroy(&j->news);
    pthread_mutex_destroy(&j->lock);
}

/* ---- what negotiation says ------------------------------------------------------------------- */

void join_wanted(struct circle *c, const char *name, const struct signature *sig)
{
    struct join *j = &c->engine->join;
    struct join_want *w = calloc(1, sizeof(*w));
    if (!w) {
        err_set(&c->engine->trouble, ENOMEM, "no memory for an operation of other ranks");
        return;
    }
    *w = (struct join_want){.set = c->set, .sig = *sig};
    memccpy(w->name, name, 0, HVD_MAX_NAME);
    pthread_mutex_lock(&j->lock);
    *j->end = w;
    j->end = &w->next;
    pthread_cond_signal(&j->news);
    pthread_mutex_unlock(&j->lock);
}

void join_is_over(struct circle *c, int last)
{
    struct join *j = &c->engine->join;
    pthread_mutex_lock(&j->lock);
    j->over = true;
    j->last = circle_world_rank(c, last);
    pthread_cond_signal(&j->news);
    pthread_mutex_unlock(&j->lock);
}

/* Waits a moment for news. Returns what is wanted, or NULL. */
static struct join_want *take(struct join *j, bool *ret_over)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&j->lock);
    if (!j->first && !j->over)
        pthread_cond_timedwait(&j->news, &j->lock, &until);
    struct join_want *w = j->first;
    j->first = NULL;
    j->end = &j->first;
    *ret_over = j->over;
    pthread_mutex_unlock(&j->lock);
    return w;
}

/* ---- serving ----------------------------------------------------------------------------------
 */

/* Whether negotiation still waits for it. */
static bool is_wanted(struct engine *e, const struct join_want *w)
{
    drive_lock(e);
    struct circle *c = sets_circle(e, w->set);
    bool wanted = c && c->neg && negotiate_wants(c->neg, w->name);
    drive_leave(e);
    return wanted;
}

static int submit(struct serving *s, struct served *one, const struct join_want *w, struct err *err)
{
    struct engine *e = s->e;
    struct signature sig = w->sig;
    struct hvd_request r;
    int size = 0, rank = queue_place(e->queue, w->set, &size), gpu = queue_gpu(e->queue);
    int64_t rows = sig.ndim > 0 ? request_rows(sig.shape[0], rank, size) : 1;
    sig.joined = sig.kind == HVD_BROADCAST && sig.root == rank;
    int rc = neutral_make(&one->neutral, &s->gpu, gpu < 0 ? e->world->local_rank : gpu, &sig, rows,
                          &r, err);
    r.name = w->name;
    r.set = w->set;
    if (rc == 0)
        rc = queue_submit_neutral(e->queue, &r, &sig, clock_ns(), &one->handle, err);
    if (rc < 0)
        return rc;
    one->slot = queue_find(e->queue, one->handle);
    one->next = s->first;
    s->first = one;
    drive_submitted(e, w->set);
    return 0;
}

/* Other ranks wait for what this rank cannot do: the job cannot go on. */
static void give_up(struct engine *e, const struct err *why)
{
    drive_lock(e);
    if (!e->failed && !e->trouble.code)
        err_set(&e->trouble, -why->code, "a rank that has joined: %s", why->msg);
    e->circle.next_tick = 0;
    drive_leave(e);
}

static void serve(struct serving *s, const struct join_want *w)
{
    struct err err = {0};
    if (!is_wanted(s->e, w))
        return;
    if (strcmp(w->name, SET_CALL_NAME) == 0) {
        sets_say_joined(s->e);
        return;
    }
    struct served *one = calloc(1, sizeof(*one));
    int rc = one ? submit(s, one, w, &err) : err_set(&err, ENOMEM, "no memory");
    if (rc == 0)
        return;
    if (one)
        neutral_free(&one->neutral, &s->gpu);
    free(one);
    give_up(s->e, &err);
}

static size_t count_unfinished(const struct serving *s)
{
    size_t n = 0;
    for (const struct served *one = s->first; one; one = one->next)
        n += !atomic_load(&one->slot->done);
    return n;
}

/* Frees operations that are done. */
static void reap(struct serving *s)
{
    for (struct served **at = &s->first, *one; (one = *at) != NULL;) {
        if (!atomic_load(&one->slot->done)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        if (queue_claim(one->slot, one->handle))
            queue_release(s->e->queue, one->slot, one->handle);
        neutral_free(&one->neutral, &s->gpu);
        free(one);
    }
}

/* ---- begin and end ----------------------------------------------------------------------------
 */

/* In sets nobody is ever done: all ranks join together, in the world. Called with the progress lock
 * held. */
static void tell_circles(struct serving *s, enum negotiate_join state)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(s->e, i)) != NULL; i++) {
        if (!c->neg)
            continue;
        if (i == 0 || state != NEGOTIATE_DONE)
            negotiate_join(c->neg, state);
        c->next_tick = 0;
    }
    s->state = state;
}

static void change(struct serving *s, enum negotiate_join state)
{
    drive_lock(s->e);
    tell_circles(s, state);
    drive_leave(s->e);
}

/* Why this can never end. */
static int cannot_end(struct engine *e, struct err *err)
{
    const struct control *t = &e->circle.control;
    if (atomic_load(&e->drive.closing))
        return err_set(err, ESHUTDOWN,
                       "hvd_shutdown() was called while a thread was in hvd_join()");
    if (e->failed)
        return err_set(err, -e->failure.code, "%s", e->failure.msg);
    if (t->ndeparted > 0 && clock_ns() - t->departed_ns > FAREWELL_NS)
        return err_set(err, ESHUTDOWN, "rank %d has shut down without hvd_join()",
                       t->first_departed);
    return 0;
}

/* Looks whether operations of this rank's own are still in flight; other threads may have left
 * some. Of what the queue counts, served ones are counted later, so that none of them is missed. */
static int look(struct serving *s, struct err *err)
{
    struct engine *e = s->e;
    drive_lock(e);
    int rc = cannot_end(e, err);
    size_t all = atomic_load(&e->queue->in_flight);
    bool own = e->fast_busy || all > count_unfinished(s);
    if (rc == 0 && s->state == NEGOTIATE_SERVES && !own)
        tell_circles(s, NEGOTIATE_DONE);
    drive_leave(e);
    reap(s);
    return rc;
}

static int begin(struct engine *e, struct err *err)
{
    if (e->boot.elastic)
        return err_set(err, ENOTSUP, "hvd_join() is not possible in an elastic job yet");
    int rc = queue_join(e->queue, err);
    if (rc < 0)
        return rc;
    drop_wants(&e->join);
    e->join.over = false;
    return 0;
}

/* Until all are over. Bounded: they have failed, or all ranks take part in them. */
static void finish_all(struct serving *s)
{
    const struct timespec nap = {.tv_nsec = 500000};
    while (count_unfinished(s) > 0)
        nanosleep(&nap, NULL);
    reap(s);
    neutral_gpu_close(&s->gpu);
}

int join_run(struct engine *e, struct err *err)
{
    struct serving s = {.e = e};
    bool over = false;
    int rc = begin(e, err);
    if (rc < 0)
        return rc;
    change(&s, NEGOTIATE_SERVES);
    while (rc == 0 && !over) {
        struct join_want *first = take(&e->join, &over);
        for (struct join_want *w = first, *next; w; w = next) {
            next = w->next;
            serve(&s, w);
            free(w);
        }
        if (!over)
            rc = look(&s, err);
    }
    finish_all(&s);
    change(&s, NEGOTIATE_PLAYS);
    queue_joined(e->queue);
    return rc < 0 ? rc : e->join.last;
}
