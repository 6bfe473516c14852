/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: see rendezvous.h. A message is {u8 type, key, rest}, the key being {u8 round, str
 * name, ranklist}:
 *
 *   ENTER  up    u32 rank, u64 limit, u16 length, bytes
 *   END    down  i32 0 or -errno; u32 serial; for each rank of the list u16 length, bytes, or if
 *                it failed str why
 *
 * A node forwards both without change, and remembers the children from which an ENTER came.
 */
#include "core/negotiate/rendezvous.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/ranklist.h"

enum { ENTER = 1, END };

#define POINTS_MAX 65536                 /* open on a node: bounds what peers can make it store */
#define LIMIT_MAX  (24 * 3600 * CLOCK_S) /* a longer time limit is cut */

/* A key in a message. */
struct key {
    const uint8_t *bytes; /* inside the message */
    size_t len;
    int *ranks; /* [n], owned */
    int n;
};

struct point {
    struct list at;
    struct buf key;
    uint64_t hash; /* of the key */
    int *ranks;    /* [n] */
    int n;
    void *caller; /* of rendezvous_enter() on this rank; NULL: no thread of it has entered */
    bool *via;    /* [children] ranks at or below this child have entered */
    /* on rank 0: */
    struct buf *of;           /* [n] what the ranks have entered with */
    bool *entered;            /* [n] */
    int nentered;             /* ranks */
    uint64_t limit, deadline; /* ns, clock time */
};

struct rendezvous {
    int size, rank, parent;
    int *children; /* [nchildren] */
    int nchildren;
    struct rendezvous_ops ops;
    void *ctx;
    struct list points;
    int npoints;
    uint32_t serial;
    bool *departed;   /* [size] */
    struct err apart; /* why rank 0 cannot be reached any more; code 0: it can */
    struct buf out;
    int failed;
};

/* ---- life ----------------------------------------------------------------------------------- */

int rendezvous_create(int size, int rank, int parent, const int *children, int nchildren,
                      uint32_t serial, const struct rendezvous_ops *ops, void *ctx,
                      struct rendezvous **ret, struct err *err)
{
    struct rendezvous *v = calloc(1, sizeof(*v));
    if (!v)
        return err_set(err, ENOMEM, "no memory for rendezvous");
    *v = (struct rendezvous){
        .size = size, .rank = rank, .parent = parent, .ops = *ops, .ctx = ctx, .serial = serial};
    list_init(&v->points);
    v->children = calloc((size_t)nchildren + 1, sizeof(*v->children));
    v->departed = calloc((size_t)size, sizeof(*v->departed));
    if (!v->children || !v->departed) {
        rendezvous_destroy(v);
        return err_set(err, ENOMEM, "no memory for rendezvous");
    }
    v->nchildren = nchildren;
    memcpy(v->children, children, (size_t)nchildren * sizeof(*children));
    *ret = v;
    return 0;
}

static void point_free(struct rendezvous *v, struct point *p)
{
    if (!p)
        return;
    for (int i = 0; p->of && i < p->n; i++)
        buf_fini(&p->of[i]);
    buf_fini(&p->key);
    free(p->ranks);
    free(p->via);
    free(p->of);
    free(p->entered);
    free(p);
}

static void drop(struct rendezvous *v, struct point *p)
{
    list_remove(&p->at);
    v->npoints--;
    point_free(v, p);
}

void rendezvous_destroy(struct rendezvous *v)
{
    if (!v)
        return;
    list_for_each(at, next, &v->points)
    {
        drop(v, list_entry(at, struct point, at));
    }
    buf_fini(&v->out);
    free(v->children);
    free(v->departed);
    free(v);
}

int rendezvous_failed(const struct rendezvous *v)
{
    return v->failed;
}

/* ---- keys and points ------------------------------------------------------------------------ */

static int key_read(struct reader *r, int size, struct key *ret)
{
    char name[HVD_MAX_NAME + 1];
    size_t begin = r->pos;
    reader_u8(r);
    reader_str(r, name, sizeof(name));
    int n = r->failed || !name[0] ? -EPROTO : ranklist_read(r, size, &ret->ranks);
    if (n < 0)
        return n;
    ret->n = n;
    ret->bytes = r->data + begin;
    ret->len = r->pos - begin;
    return 0;
}

static struct point *find(struct rendezvous *v, const struct key *key)
{
    uint64_t hash = hash_bytes(key->bytes, key->len);
    list_for_each(at, next, &v->points)
    {
        struct point *p = list_entry(at, struct point, at);
        if (p->hash == hash && p->key.len == key->len &&
            memcmp(p->key.data, key->bytes, key->len) == 0)
            return p;
    }
    return NULL;
}

/* Takes the key's ranks over. NULL: no memory. */
static struct point *add(struct rendezvous *v, struct key *key)
{
    size_t n = (size_t)key->n;
    struct point *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    buf_put(&p->key, key->bytes, key->len);
    p->hash = hash_bytes(key->bytes, key->len);
    p->n = key->n;
    p->via = calloc((size_t)v->nchildren + 1, sizeof(*p->via));
    bool well = !p->key.failed && p->via;
    if (v->rank == 0) {
        p->of = calloc(n, sizeof(*p->of));
        p->entered = calloc(n, sizeof(*p->entered));
        well = well && p->of && p->entered;
    }
    if (!well) {
        point_free(v, p);
        return NULL;
    }
    p->ranks = TAKE(key->ranks);
    list_append(&v->points, &p->at);
    v->npoints++;
    return p;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Fills end->of, whose memory the caller frees. -EPROTO, -ENOMEM. */
static int read_end(struct reader *r, int n, struct rendezvous_end *end)
{
    char why[sizeof(end->err.msg)];
    int32_t code = (int32_t)reader_u32(r);
    if (code != 0) {
        reader_str(r, why, sizeof(why));
        if (!reader_ok(r) || code > 0 || code < -4095)
            return -EPROTO;
        err_set(&end->err, -code, "%s", why);
        return 0;
    }
    end->serial = reader_u32(r);
    end->n = n;
    end->of = calloc((size_t)n, sizeof(*end->of));
    if (!end->of)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        end->of[i].len = reader_u16(r);
        end->of[i].data = reader_bytes(r, end->of[i].len);
    }
    return reader_ok(r) ? 0 : -EPROTO;
}

/* Tells the caller and the children. msg: an END; rest: what follows its key. */
static int tell(struct rendezvous *v, struct point *p, const struct buf *msg, struct reader rest)
{
    struct rendezvous_end end = {.n = 0};
    int rc = read_end(&rest, p->n, &end);
    for (int i = 0; rc == 0 && i < v->nchildren; i++)
        if (p->via[i])
            v->ops.send(v->ctx, v->children[i], msg);
    if (rc == 0 && p->caller)
        v->ops.end(v->ctx, p->caller, &end);
    free(end.of);
    drop(v, p);
    return rc;
}

static void begin_end(struct rendezvous *v, const struct point *p, int code)
{
    buf_reset(&v->out);
    buf_put_u8(&v->out, END);
    buf_put(&v->out, p->key.data, p->key.len);
    buf_put_u32(&v->out, (uint32_t)code);
}

/* Ends the point with the message in v->out. */
static void finish(struct rendezvous *v, struct point *p)
{
    struct reader rest = reader_over(v->out.data, v->out.len);
    int rc = v->out.failed ? -ENOMEM : 0;
    if (rc == 0) {
        reader_bytes(&rest, 1 + p->key.len);
        rc = tell(v, p, &v->out, rest);
    }
    if (rc < 0)
        v->failed = rc;
}

static void finish_failed(struct rendezvous *v, struct point *p, const struct err *why)
{
    begin_end(v, p, why->code);
    buf_put_str(&v->out, why->msg);
    finish(v, p);
}

static void finish_well(struct rendezvous *v, struct point *p)
{
    begin_end(v, p, 0);
    buf_put_u32(&v->out, ++v->serial);
    for (int i = 0; i < p->n; i++) {
        buf_put_u16(&v->out, (uint16_t)p->of[i].len);
        buf_put(&v->out, p->of[i].data, p->of[i].len);
    }
    finish(v, p);
}

static void set_departed(struct err *err, int rank)
{
    *err = (struct err){.code = 0};
    err_set(err, ESHUTDOWN, "rank %d has shut down", rank);
}

/* On rank 0: a rank that has shut down and without which the point cannot end well: one of the
 * list, or a child below which a rank has entered, since that one has failed by itself. -1: none.
 */
static int departed_of(const struct rendezvous *v, const struct point *p)
{
    for (int i = 0; i < p->n; i++)
        if (v->departed[p->ranks[i]])
            return p->ranks[i];
    for (int i = 0; i < v->nchildren; i++)
        if (p->via[i] && v->departed[v->children[i]])
            return v->children[i];
    return -1;
}

/* On rank 0. Returns whether it has ended the point. */
static bool end_if_departed(struct rendezvous *v, struct point *p)
{
    int rank = departed_of(v, p);
    if (rank < 0)
        return false;
    struct err why;
    set_departed(&why, rank);
    finish_failed(v, p, &why);
    return true;
}

static void time_out(struct rendezvous *v, struct point *p)
{
    auto_free int *late = calloc((size_t)p->n, sizeof(*late));
    struct err why = {.code = 0};
    char text[200];
    int n = 0;
    if (!late) {
        v->failed = -ENOMEM;
        return;
    }
    for (int i = 0; i < p->n; i++)
        if (!p->entered[i])
            late[n++] = p->ranks[i];
    ranklist_text(late, n, text, sizeof(text));
    err_set(&why, ETIMEDOUT, "%s %s not called it within %g s", text, n == 1 ? "has" : "have",
            (double)p->limit / (double)CLOCK_S);
    finish_failed(v, p, &why);
}

/* ---- entering ------------------------------------------------------------------------------- */

/* A rank enters, as the message says. `rest` is what follows the key. child: index of the sender;
 * -1: this rank itself. */
static int enter(struct rendezvous *v, struct point *p, int child, const struct buf *msg,
                 struct reader *rest, uint64_t now)
{
    uint32_t rank = reader_u32(rest);
    uint64_t limit = reader_u64(rest);
    size_t len = reader_u16(rest);
    const void *bytes = reader_bytes(rest, len);
    int i = rank < (uint32_t)v->size ? ranklist_find(p->ranks, p->n, (int)rank) : -1;
    if (!reader_ok(rest) || i < 0 || (p->entered && p->entered[i]))
        return -EPROTO;
    if (child >= 0)
        p->via[child] = true;
    if (!p->entered) /* this is not rank 0 */
        return v->ops.send(v->ctx, NEGOTIATE_PARENT, msg);
    if (p->nentered++ == 0) {
        p->limit = limit < LIMIT_MAX ? limit : LIMIT_MAX;
        p->deadline = now + p->limit;
    }
    p->entered[i] = true;
    buf_put(&p->of[i], bytes, len);
    if (p->of[i].failed)
        return -ENOMEM;
    if (!end_if_departed(v, p) && p->nentered == p->n)
        finish_well(v, p);
    return v->failed;
}

static void write_enter(struct rendezvous *v, const struct rendezvous_point *point,
                        const void *bytes, size_t len, uint64_t limit)
{
    struct buf *b = &v->out;
    buf_reset(b);
    buf_put_u8(b, ENTER);
    buf_put_u8(b, point->round);
    buf_put_str(b, point->name);
    ranklist_write(point->ranks, point->n, b);
    buf_put_u32(b, (uint32_t)v->rank);
    buf_put_u64(b, limit);
    buf_put_u16(b, (uint16_t)len);
    buf_put(b, bytes, len);
}

int rendezvous_enter(struct rendezvous *v, const struct rendezvous_point *point, const void *bytes,
                     size_t len, uint64_t limit, uint64_t now, void *caller, struct err *err)
{
    struct buf msg = {.data = NULL};
    struct key key = {.ranks = NULL};
    if (v->apart.code)
        return err_set(err, -v->apart.code, "%s", v->apart.msg);
    if (v->npoints >= POINTS_MAX)
        return err_set(err, ENOSPC, "%d rendezvous are open", v->npoints);
    if (ranklist_find(point->ranks, point->n, v->rank) < 0)
        return err_set(err, EINVAL, "rank %d is not one of the ranks that meet", v->rank);
    write_enter(v, point, bytes, len, limit);
    msg = v->out; /* the answer may be written before the message is read to its end */
    v->out = (struct buf){.data = NULL};
    struct reader r = reader_over(msg.data, msg.len);
    reader_u8(&r);
    int rc = msg.failed ? -ENOMEM : key_read(&r, v->size, &key);
    struct point *p = rc == 0 ? find(v, &key) : NULL;
    if (p && p->caller)
        rc = -EBUSY;
    else if (rc == 0 && !p && !(p = add(v, &key)))
        rc = -ENOMEM;
    if (rc == 0) {
        p->caller = caller;
        rc = v->failed = enter(v, p, -1, &msg, &r, now);
    }
    buf_fini(&msg);
    free(key.ranks);
    if (rc == -EBUSY)
        return err_set(err, EBUSY, "another thread of this rank waits there");
    return rc < 0 ? err_set(err, -rc, "the rendezvous '%s' cannot begin", point->name) : 0;
}

void rendezvous_forget(struct rendezvous *v, const void *caller)
{
    list_for_each(at, next, &v->points)
    {
        struct point *p = list_entry(at, struct point, at);
        if (p->caller == caller)
            p->caller = NULL;
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

static int recv_enter(struct rendezvous *v, int child, const struct buf *msg, struct reader *r,
                      struct key *key, uint64_t now)
{
    struct point *p = find(v, key);
    if (!p && v->npoints >= POINTS_MAX)
        return -EPROTO;
    if (!p && !(p = add(v, key)))
        return -ENOMEM;
    return enter(v, p, child, msg, r, now);
}

static int recv_end(struct rendezvous *v, const struct buf *msg, struct reader r,
                    const struct key *key)
{
    struct point *p = find(v, key);
    return p ? tell(v, p, msg, r) : 0; /* it may have been ended here: see rendezvous_departed() */
}

int rendezvous_recv(struct rendezvous *v, int from, const void *msg, size_t len, uint64_t now,
                    struct err *err)
{
    const struct buf whole = {.data = (uint8_t *)(uintptr_t)msg, .len = len, .cap = len};
    struct reader r = reader_over(msg, len);
    struct key key = {.ranks = NULL};
    uint8_t type = reader_u8(&r);
    int child = 0;
    int rc = key_read(&r, v->size, &key);
    while (child < v->nchildren && v->children[child] != from)
        child++;
    if (rc == 0 && type == END && from == NEGOTIATE_PARENT && v->rank != 0)
        rc = recv_end(v, &whole, r, &key);
    else if (rc == 0 && type == ENTER && child < v->nchildren)
        rc = recv_enter(v, child, &whole, &r, &key, now);
    else if (rc == 0)
        rc = -EPROTO;
    free(key.ranks);
    if (rc == 0)
        rc = v->failed;
    return rc < 0 ? err_set(err, -rc, "%s of rendezvous (type %u, %zu bytes)",
                            rc == -ENOMEM ? "out of memory at a message" : "bad message", type, len)
                  : 0;
}

uint64_t rendezvous_tick(struct rendezvous *v, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    if (v->rank != 0)
        return due;
    list_for_each(at, next, &v->points)
    {
        struct point *p = list_entry(at, struct point, at);
        if (now >= p->deadline)
            time_out(v, p);
        else if (p->deadline < due)
            due = p->deadline;
    }
    return due;
}

void rendezvous_departed(struct rendezvous *v, int rank)
{
    v->departed[rank] = true;
    if (v->rank != 0 && rank != 0 && rank != v->parent)
        return; /* rank 0 tells the ranks that have entered */
    if (v->rank != 0)
        set_departed(&v->apart, rank);
    list_for_each(at, next, &v->points)
    {
        struct point *p = list_entry(at, struct point, at);
        if (v->rank == 0)
            end_if_departed(v, p);
        else
            finish_failed(v, p, &v->apart);
    }
}
