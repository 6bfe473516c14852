/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_allreduce: see shm_allreduce.h.
 *
 * Payloads beside the flags use two buffers alternately. Reusing a buffer is safe: this seat has
 * seen all seats in the last operation, so all of them have finished the one before it.
 */
#include "core/coll/shm_allreduce.h"

#include <stdlib.h>
#include <string.h>

#include "core/coll/algorithm.h"
#include "core/coll/reduce.h"
#include "core/coll/shm_steps.h"

enum phase { IDLE, SMALL_ENTER, SMALL_WAIT, RUN };

struct shm_allreduce {
    struct mesh *mesh;
    struct shm *shm;
    struct shm_pieces *pieces;
    struct shm_steps *steps;
    const struct coll_op *op;
    enum phase phase;
    const char *name;
    struct layout layout;
    struct reduce_plan plan;
    size_t bytes;
    struct shm_watch enter;
    int seen;         /* small path: seats that have entered */
    const void **src; /* [seats] */
};

int shm_allreduce_create(struct mesh *mesh, struct shm_pieces *pieces, struct shm_allreduce **ret,
                         struct err *err)
{
    struct shm_allreduce *s = calloc(1, sizeof(*s));
    if (s)
        s->src = calloc((size_t)mesh->shm->seats, sizeof(*s->src));
    if (!s || !s->src) {
        free(s);
        return err_set(err, ENOMEM, "no memory for allreduce");
    }
    s->mesh = mesh;
    s->shm = mesh->shm;
    s->pieces = pieces;
    s->steps = shm_pieces_steps(pieces);
    s->name = "shm_small";
    *ret = s;
    return 0;
}

void shm_allreduce_destroy(struct shm_allreduce *s)
{
    if (!s)
        return;
    free((void *)s->src);
    free(s);
}

/* In the symmetric algorithm every seat reads every seat's input: worth it while the slice
 * owners' second wait costs more. */
static size_t symmetric_max(int seats)
{
    return ((size_t)3 << 18) / (size_t)(seats > 1 ? seats - 1 : 1);
}

void shm_allreduce_start(struct shm_allreduce *s, const struct coll_op *op)
{
    size_t count = 0;
    for (size_t i = 0; i < op->n; i++)
        count += op->tensors[i].count;
    s->op = op;
    s->layout = (struct layout){
        .tensors = op->tensors, .n = op->n, .elem = hvd_dtype_size(op->dtype), .pieces = 1};
    s->bytes = count * s->layout.elem;
    s->plan = coll_reduce_plan(op);
    if (op->kind == HVD_BARRIER)
        s->bytes = 0;
    if (s->bytes <= SHM_INLINE_MAX) {
        shm_steps_enter(s->steps);
        s->name = "shm_small";
        s->phase = s->bytes == 0 && op->kind != HVD_BARRIER ? IDLE : SMALL_ENTER;
        return;
    }
    s->phase = RUN;
    if (s->bytes <= symmetric_max(s->shm->seats)) {
        s->name = "shm_symmetric";
        shm_pieces_symmetric(s->pieces, &s->layout, &s->plan);
    } else {
        s->name = "shm_slice";
        shm_pieces_allreduce(s->pieces, &s->layout, &s->plan);
    }
}

/* ---- beside the flags ----------------------------------------------------------------------- */

static void small_publish(struct shm_allreduce *s)
{
    struct shm_flags *flags = shm_flags_of(s->shm, s->shm->seat);
    uint8_t *payload = flags->small[s->steps->small % 2].payload;
    for (size_t i = 0; s->bytes > 0 && i < s->op->n; i++) {
        size_t n = s->op->tensors[i].count * s->layout.elem;
        if (n > 0)
            memcpy(payload, s->op->tensors[i].in, n);
        payload += n;
    }
    atomic_store_explicit(&flags->small[s->steps->small % 2].stamp,
                          shm_stamp(s->steps->generation, s->steps->small + 1),
                          memory_order_release);
    shm_ring_all(s->shm);
    s->seen = 0;
}

static bool small_is_in(const struct shm_allreduce *s, int seat)
{
    const struct shm_flags *flags = shm_flags_of(s->shm, seat);
    return atomic_load_explicit(&flags->small[s->steps->small % 2].stamp, memory_order_acquire) >=
           shm_stamp(s->steps->generation, s->steps->small + 1);
}

static bool small_all_in(struct shm_allreduce *s)
{
    while (s->seen < s->shm->seats && small_is_in(s, s->seen))
        s->seen++;
    return s->seen == s->shm->seats;
}

static void small_sum(struct shm_allreduce *s)
{
    size_t at = 0;
    for (size_t i = 0; s->bytes > 0 && i < s->op->n; i++) {
        const struct coll_tensor *t = &s->op->tensors[i];
        for (int seat = 0; seat < s->shm->seats; seat++)
            s->src[seat] = shm_flags_of(s->shm, seat)->small[s->steps->small % 2].payload + at;
        reduce(&s->plan, t->out, s->src, s->shm->seats, t->count, NULL, true, false);
        at += t->count * s->layout.elem;
    }
}

int shm_allreduce_progress(struct shm_allreduce *s)
{
    int rc;
    switch (s->phase) {
    case SMALL_ENTER:
        /* The first operation of a generation: other seats may still read what the former
         * generation wrote here. */
        if (s->steps->small == 0 && !shm_steps_told(s->steps, &s->enter, SHM_OUT, s->shm->seats, 0))
            break;
        small_publish(s);
        s->phase = SMALL_WAIT;
        /* fall through */
    case SMALL_WAIT:
        if (!small_all_in(s) || !shm_steps_may_return(s->steps))
            break;
        small_sum(s);
        s->steps->small++;
        s->phase = IDLE;
        return 0;
    case RUN:
        rc = shm_pieces_progress(s->pieces);
        if (rc == 0)
            s->phase = IDLE;
        return rc;
    case IDLE:
        return 0;
    }
    return shm_aborted(s->shm) ? -ECONNRESET : 1;
}

void shm_allreduce_cancel(struct shm_allreduce *s)
{
    if (s->phase == RUN)
        shm_pieces_cancel(s->pieces);
    s->phase = IDLE;
}

uint32_t shm_allreduce_final(const struct shm_allreduce *s, uint32_t *final)
{
    if (s->phase == RUN)
        return shm_pieces_final(s->pieces, final);
    if (s->phase == IDLE)
        return 0;
    final[0] = s->phase == SMALL_WAIT;
    for (int i = 0; i < s->shm->seats; i++)
        final[0] = final[0] && small_is_in(s, i);
    return 1;
}

int shm_allreduce_settle(struct shm_allreduce *s, const uint32_t *final, struct coll_rest *rest)
{
    if (s->phase == RUN)
        return shm_pieces_settle(s->pieces, final, rest);
    if (s->phase == SMALL_WAIT && (!final || final[0]))
        small_sum(s);
    return 0;
}

const char *shm_allreduce_name(const struct shm_allreduce *s)
{
    return s->name;
}
