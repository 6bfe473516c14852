/* SPDX-License-Identifier: Apache-2.0
 *
 * join: see join.h.
 */
#include "core/engine/join.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/engine/boundary.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/messages.h"
#include "core/engine/neutral.h"
#include "core/engine/set_call.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"
#include "core/negotiate/signature.h"

#define RANK_BITS   20 /* of a rank in a word of the vote */
#define END_NAME    "hvd.join"
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
    bool set_vote; /* the one of hvd_set_add() or hvd_set_remove() in which a rank can refuse */
    struct neutral neutral;
};

struct serving {
    struct engine *e;
    struct served *first;
    struct neutral_gpu gpu;
    bool tells;  /* this rank has to tell the others why they cannot make or remove a set */
    bool failed; /* the engine has failed */
};

/* Buffers that a back end may use until the process ends. */
static struct served *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

void join_init(struct join *j)
{
    pthread_condattr_t monotonic;
    j->end = &j->first;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_init(&j->boundaries, NULL);
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
    pthread_mutex_destroy(&j->boundaries);
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
    inject_point("join");
    pthread_mutex_lock(&j->lock);
    j->over = true;
    j->last = c->map.same ? last : c->map.to_world[last];
    j->state = NEGOTIATE_ACTIVE; /* also in the next epoch */
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

/* ---- serving -------------------------------------------------------------------------------- */

/* Whether negotiation still waits for it. */
static bool is_wanted(struct engine *e, const struct join_want *w)
{
    drive_lock(e);
    struct circle *c = sets_circle(e, w->set);
    bool wanted = c && c->neg && negotiate_wants(c->neg, w->name);
    drive_leave(e);
    return wanted;
}

/* The GPU on which this rank has tensors, or the one that it is most likely to use. */
static int choose_gpu(struct engine *e)
{
    const struct cuda_api *api;
    int ordinal = queue_gpu(e->queue), gpus = 0;
    if (ordinal >= 0)
        return ordinal;
    if (cuda_api_start(&api, NULL) < 0 || api->device_count(&gpus) != CUDA_OK || gpus < 1)
        return 0; /* opening it says why there is none */
    return e->world->local_rank % gpus;
}

/* Other ranks make or remove a set, which needs this rank, too: they get an error. */
static void refuse_set(struct serving *s, struct served *one, const struct hvd_request *r)
{
    int rank = sets_own_rank(s->e);
    struct err mine = {0}, *telling = one->neutral.in;
    size_t words = one->neutral.bytes / sizeof(int64_t);
    err_set(&mine, EBUSY, "it is in hvd_join(), and a set needs all ranks");
    if (r->dtype == HVD_INT64 && words > 1) {
        vote_refuse(one->neutral.in, words, rank, &mine);
        one->set_vote = true;
    } else if (s->tells && r->op == HVD_BOR && one->neutral.bytes == sizeof(*telling)) {
        vote_telling(telling, rank, &mine);
        s->tells = false;
    }
}

static int submit(struct serving *s, struct served *one, const struct join_want *w, struct err *err)
{
    struct engine *e = s->e;
    struct signature sig = w->sig;
    struct hvd_request r;
    int size = 0, rank = queue_place(e->queue, w->set, &size);
    if (size == 0)
        return err_set(err, EEXIST, "the set was removed");
    int64_t rows = sig.ndim > 0 ? request_rows(sig.shape[0], rank, size) : 1;
    sig.joined = signature_needs_root(&sig) && sig.root == rank;
    bool set_call = w->set == 0 && strcmp(w->name, SET_CALL_NAME) == 0;
    bool boundary = w->set == 0 && strcmp(w->name, BOUNDARY_NAME) == 0;
    int rc = neutral_make(&one->neutral, &s->gpu, sig.device < 0 ? -1 : choose_gpu(e), &sig, rows,
                          !e->set.join_all && !set_call && !boundary, &r, err);
    r.name = w->name;
    r.set = w->set;
    if (rc == 0 && set_call)
        refuse_set(s, one, &r);
    if (rc == 0 && boundary)
        boundary_say_joined(one->neutral.in, one->neutral.bytes / sizeof(int64_t));
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

/* The buffers of an operation that has failed may still be used: MPI cannot take it back, and
 * freeing memory of a GPU that hangs would hang, too. */
static bool keeps(const struct serving *s, const struct served *one)
{
    bool on_gpu = one->neutral.on_gpu[0].at || one->neutral.on_gpu[1].at;
    return one->slot->status < 0 && (queue_abandoned(s->e->queue) || (on_gpu && s->failed));
}

static void keep(struct served *one)
{
    pthread_mutex_lock(&kept_lock);
    one->next = kept; /* reachable for leak checkers */
    kept = one;
    pthread_mutex_unlock(&kept_lock);
}

/* Whether this rank has to tell why. The result is in the place of the input. */
static void read_vote(struct serving *s, const struct served *one)
{
    struct err mine = {.code = -EBUSY};
    if (one->set_vote && one->slot->status == 0)
        s->tells = vote_tells(one->neutral.in, one->neutral.bytes / sizeof(int64_t),
                              sets_own_rank(s->e), &mine);
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
        read_vote(s, one);
        bool keeping = keeps(s, one);
        if (queue_claim(one->slot, one->handle))
            queue_release(s->e->queue, one->slot, one->handle);
        if (keeping) {
            keep(one);
            continue;
        }
        neutral_free(&one->neutral, &s->gpu);
        free(one);
    }
}

static void serve(struct serving *s, const struct join_want *w)
{
    struct err err = {0};
    if (!is_wanted(s->e, w))
        return;
    reap(s);
    struct served *one = calloc(1, sizeof(*one));
    int rc = one ? submit(s, one, w, &err) : err_set(&err, ENOMEM, "no memory");
    if (rc == 0)
        return;
    if (one)
        neutral_free(&one->neutral, &s->gpu);
    free(one);
    if (rc != -EEXIST) /* else this rank's program had submitted it already */
        give_up(s->e, &err);
}

static bool any_unfinished(const struct serving *s)
{
    bool any = false;
    for (const struct served *one = s->first; one; one = one->next)
        any = any || !atomic_load(&one->slot->done);
    return any;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* In sets no rank is ever drained: the join ends in the world. Called with the progress lock held.
 */
static void tell_circles(struct engine *e, enum negotiate_join state)
{
    struct circle *c;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        if (!c->neg)
            continue;
        if (i == 0 || state != NEGOTIATE_DRAINED)
            negotiate_join(c->neg, state);
        c->next_tick = 0;
    }
    e->join.state = state;
}

static void change(struct engine *e, enum negotiate_join state)
{
    drive_lock(e);
    tell_circles(e, state);
    drive_leave(e);
}

/* In a new epoch this rank has to be drained once more: operations begin again. */
void join_go_on(struct circle *c)
{
    struct join *j = &c->engine->join;
    if (j->state == NEGOTIATE_ACTIVE)
        return;
    negotiate_join(c->neg, NEGOTIATE_JOINED);
    if (c->set == 0)
        j->state = NEGOTIATE_JOINED;
}

/* Returns an error if the join cannot end any more. */
static int cannot_end(struct engine *e, struct err *err)
{
    const struct control *t = &e->circle.control;
    if (atomic_load(&e->drive.closing))
        return err_set(err, ESHUTDOWN,
                       "hvd_shutdown() was called while a thread was in hvd_join()");
    if (e->failed)
        return err_set(err, -e->failure.code, "%s", e->failure.msg);
    if (t->ndeparted == 0 || clock_ns() - t->departed_ns <= FAREWELL_NS)
        return 0;
    err_set(err, ESHUTDOWN, "rank %d has shut down without hvd_join()", t->first_departed);
    if (!e->boot.elastic)
        return err->code;
    engine_repair(e, err); /* the others go on without it */
    return 0;
}

/* Also of sets whose circle is made anew at the moment. */
static bool any_message(struct engine *e)
{
    bool any = messages_in_flight(&e->circle);
    for (size_t i = 0; i < e->sets.n; i++)
        any = any || messages_in_flight(&e->sets.table[i]->circle);
    return any;
}

/* Looks whether operations are still in flight; other threads may have left some. Those that this
 * rank has served count, too: if the rank that had submitted one by itself is lost, all ranks that
 * are left have to serve it before the join ends. */
static int look(struct serving *s, struct err *err)
{
    struct engine *e = s->e;
    drive_lock(e);
    int rc = cannot_end(e, err);
    s->failed = e->failed;
    bool busy = e->fast_busy || atomic_load(&e->queue->in_flight) > 0 || any_message(e);
    if (rc == 0 && e->join.state == NEGOTIATE_JOINED && !busy)
        tell_circles(e, NEGOTIATE_DRAINED);
    drive_leave(e);
    reap(s);
    return rc;
}

static int begin(struct engine *e, struct err *err)
{
    struct join *j = &e->join;
    pthread_mutex_lock(&j->boundaries);
    sets_hold(&e->sets);
    int rc = queue_join(e->queue, err);
    sets_let(&e->sets);
    pthread_mutex_unlock(&j->boundaries);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&j->lock);
    drop_wants(j);
    j->over = false;
    j->last = -1;
    pthread_mutex_unlock(&j->lock);
    return 0;
}

/* Another rank knows that the join is over. It was so in an epoch that this rank has left before it
 * heard of that. */
static bool is_end(const struct join_want *w)
{
    return w->set == 0 && strcmp(w->name, END_NAME) == 0;
}

/* Serves until the end, or until there can be none. */
static int serve_all(struct serving *s, struct err *err)
{
    struct join *j = &s->e->join;
    bool over = false;
    int rc = 0;
    while (rc == 0 && !over) {
        rc = look(s, err);
        struct join_want *first = take(j, &over);
        for (struct join_want *w = first, *next; w; w = next) {
            next = w->next;
            over = over || is_end(w);
            if (!over) /* else an operation that comes after the end, of a rank that knows of it */
                serve(s, w);
            free(w);
        }
    }
    return over ? 0 : rc;
}

/* Waits for operations that have failed, or in which all ranks take part. */
static void finish_all(struct serving *s)
{
    const struct timespec nap = {.tv_nsec = 500000};
    while (any_unfinished(s))
        nanosleep(&nap, NULL);
    drive_lock(s->e);
    s->failed = s->e->failed;
    drive_leave(s->e);
    reap(s);
    if (!s->failed)
        neutral_gpu_close(&s->gpu);
}

/* In sets a rank serves until it leaves this call, so no rank may submit while another one is still
 * in it. Returns the rank that joined last. The root has told it, unless an epoch has ended
 * meanwhile: in the next one all ranks join at once. Then the times tell it at which they have
 * called. */
static int meet(struct engine *e, uint32_t epoch, int64_t called_ms, struct err *err)
{
    enum { LAST, CHANGED, CALLED, N };
    const struct vote v = {.engine = e, .name = END_NAME};
    int64_t words[N] = {[LAST] = e->join.last,
                        [CHANGED] = e->join.last < 0 || epoch != atomic_load(&e->epoch),
                        [CALLED] = called_ms << RANK_BITS | sets_own_rank(e)};
    int rc = vote_max(&v, words, N, words, err);
    if (rc < 0)
        return rc;
    return (int)(words[CHANGED] ? words[CALLED] & ((1 << RANK_BITS) - 1) : words[LAST]);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int join_run(struct engine *e, struct err *err)
{
    struct serving s = {.e = e};
    uint32_t epoch = atomic_load(&e->epoch);
    int64_t called = now_ms();
    int rc = begin(e, err);
    if (rc < 0)
        return rc;
    change(e, NEGOTIATE_JOINED);
    rc = serve_all(&s, err);
    finish_all(&s);
    change(e, NEGOTIATE_ACTIVE);
    inject_point("joined");
    int last = rc < 0 ? rc : meet(e, epoch, called, err);
    queue_joined(e->queue);
    return last;
}
