/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_sum: see mpi_sum.h.
 *
 * Step t of the ring sends segment place - t and receives segment place - t - 1. A step sends what
 * the step before it has received. Steps before members - 1 carry partial sums, which arrive in
 * scratch; the last of these steps makes the result. Later steps carry results, which arrive in
 * their place once the partial sum in that place has been sent.
 */
#include "core/backend/mpi_sum.h"

#include <limits.h>
#include <string.h>

#define RING_MIN  ((size_t)32 << 10) /* least bytes of a segment for the ring */
#define BLOCK_MIN ((size_t)16 << 10)
#define BLOCK_MAX ((size_t)256 << 10)
#define NEAR_ONE  ((size_t)512 << 10) /* on one host, up to here: one block, see block_of() */
/* bytes: processors confuse addresses that differ by a multiple of this, see scratch_at() */
#define ALIAS 4096

/* Blocks overlap sums and messages: one block is summed while the next one is sent, and results
 * arrive meanwhile. On one host, in place, nothing overlaps: the rank that sums also copies the
 * data, and may not overwrite what its neighbour still reads. More messages would only cost time
 * there. Depends only on what all ranks know, so not on whether this rank operates in place. */
static size_t block_of(size_t segment, bool near)
{
    if (near && segment <= NEAR_ONE)
        return (segment + 63) / 64 * 64;
    size_t block = segment / 4 / 64 * 64;
    return block < BLOCK_MIN ? BLOCK_MIN : block > BLOCK_MAX ? BLOCK_MAX : block;
}

size_t mpi_sum_scratch(size_t segment, int members, bool near)
{
    size_t ring = MPI_SUM_WINDOW * block_of(segment, near) + ALIAS;
    size_t one = segment < RING_MIN ? segment * (size_t)members : 0;
    return ring > one ? ring : one;
}

static size_t longest(const struct mpi_sum *s)
{
    size_t most = 0;
    for (int k = 0; k < s->members; k++) {
        size_t bytes = s->offsets[k + 1] - s->offsets[k];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- places --------------------------------------------------------------------------------- */

static int steps(const struct mpi_sum *s)
{
    return 2 * (s->members - 1);
}

/* shift: 0 for sends, 1 for receives. */
static int seg_at(const struct mpi_sum *s, int step, int shift)
{
    int seg = (s->place - step - shift) % s->members;
    return seg < 0 ? seg + s->members : seg;
}

static size_t left_in(const struct mpi_sum *s, const struct mpi_place *p, int shift)
{
    int seg = seg_at(s, p->step, shift);
    return s->offsets[seg + 1] - s->offsets[seg] - p->off;
}

static size_t len_at(const struct mpi_sum *s, const struct mpi_place *p, int shift)
{
    size_t left = left_in(s, p, shift);
    return left < s->block ? left : s->block;
}

static size_t at(const struct mpi_sum *s, const struct mpi_place *p, int shift)
{
    return s->offsets[seg_at(s, p->step, shift)] + p->off;
}

static bool ended(const struct mpi_sum *s, const struct mpi_place *p)
{
    return p->step >= steps(s);
}

/* Skips empty segments. */
static void skip(const struct mpi_sum *s, struct mpi_place *p, int shift)
{
    while (!ended(s, p) && left_in(s, p, shift) == 0) {
        p->step++;
        p->off = 0;
    }
}

static void advance(const struct mpi_sum *s, struct mpi_place *p, int shift)
{
    p->off += len_at(s, p, shift);
    p->n++;
    skip(s, p, shift);
}

/* Returns whether p has passed byte off of a step. */
static bool passed(const struct mpi_place *p, int step, size_t off)
{
    return p->step > step || (p->step == step && p->off > off);
}

/* ---- the ring ------------------------------------------------------------------------------- */

static struct mpi_request *recv_at(struct mpi_sum *s, const struct mpi_place *p)
{
    return &s->recvs[p->n % MPI_SUM_WINDOW];
}

static struct mpi_request *send_at(struct mpi_sum *s, const struct mpi_place *p)
{
    return &s->sends[p->n % MPI_SUM_SENDS];
}

/* Places the block at the same offset in a page as the output of the sums. Otherwise reads of
 * scratch wait for writes to other addresses with the same lower 12 bits (4K aliasing). */
static uint8_t *scratch_at(const struct mpi_sum *s, const struct mpi_place *p)
{
    return (uint8_t *)s->scratch + (uintptr_t)s->out % ALIAS + p->n % MPI_SUM_WINDOW * s->block;
}

/* Returns whether the partial sum in this place has been sent. The first ones are sent from in. */
static bool may_overwrite(const struct mpi_sum *s, const struct mpi_place *p)
{
    int sent = p->step + 1 - s->members;
    return (sent == 0 && s->in != s->out) || passed(&s->gone, sent, p->off);
}

/* Each of these functions moves as many blocks as it can without waiting and returns their number,
 * or -errno. */
static int post_receives(struct mpi_sum *s)
{
    int moved = 0, from = (s->place + s->members - 1) % s->members;
    while (!ended(s, &s->posted) && s->posted.n - s->taken.n < MPI_SUM_WINDOW) {
        struct mpi_place *p = &s->posted;
        bool result = p->step >= s->members - 1;
        if (result && !may_overwrite(s, p))
            break;
        void *to = result ? (uint8_t *)s->out + at(s, p, 1) : scratch_at(s, p);
        int rc = s->here->plugin->recv(s->comm, to, len_at(s, p, 1), from, recv_at(s, p));
        if (rc < 0)
            return rc;
        advance(s, p, 1);
        moved++;
    }
    return moved;
}

static int take_receives(struct mpi_sum *s)
{
    int moved = 0;
    while (s->taken.n != s->posted.n) {
        struct mpi_place *p = &s->taken;
        int rc = s->here->plugin->test(recv_at(s, p));
        if (rc != 0)
            return rc < 0 ? rc : moved;
        if (p->step < s->members - 1) {
            const void *src[] = {scratch_at(s, p), (const uint8_t *)s->in + at(s, p, 1)};
            reduce(&s->plan, (uint8_t *)s->out + at(s, p, 1), src, 2, len_at(s, p, 1) / s->elem,
                   NULL, p->step == s->members - 2, false);
        }
        advance(s, p, 1);
        moved++;
    }
    return moved;
}

static int begin_sends(struct mpi_sum *s)
{
    int moved = 0, to = (s->place + 1) % s->members;
    while (!ended(s, &s->begun) && s->begun.n - s->gone.n < MPI_SUM_SENDS) {
        struct mpi_place *p = &s->begun;
        if (p->step > 0 && !passed(&s->taken, p->step - 1, p->off))
            break;
        const uint8_t *from = p->step > 0 ? s->out : s->in;
        int rc =
            s->here->plugin->send(s->comm, from + at(s, p, 0), len_at(s, p, 0), to, send_at(s, p));
        if (rc < 0)
            return rc;
        advance(s, p, 0);
        moved++;
    }
    return moved;
}

static int end_sends(struct mpi_sum *s)
{
    int moved = 0;
    while (s->gone.n != s->begun.n) {
        int rc = s->here->plugin->test(send_at(s, &s->gone));
        if (rc != 0)
            return rc < 0 ? rc : moved;
        advance(s, &s->gone, 0);
        moved++;
    }
    return moved;
}

static int ring_step(void *ctx)
{
    static int (*const parts[])(struct mpi_sum *) = {post_receives, begin_sends, take_receives,
                                                     end_sends};
    struct mpi_sum *s = ctx;
    int moved = 1;
    while (moved > 0) {
        moved = 0;
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            int n = parts[i](s);
            if (n < 0)
                return n;
            moved += n;
        }
    }
    return !(ended(s, &s->taken) && ended(s, &s->gone));
}

static void start_ring(struct mpi_sum *s)
{
    s->posted = s->begun = (struct mpi_place){.step = 0};
    skip(s, &s->posted, 1);
    skip(s, &s->begun, 0);
    s->taken = s->posted;
    s->gone = s->begun;
}

/* ---- MPI's own ------------------------------------------------------------------------------ */

/* Never in place, because MPI requires that of all ranks or of none. Its algorithm for in-place
 * data is also slower than this copy. */
static int begin_one(struct mpi_sum *s)
{
    if (s->in == s->out)
        reduce_copy(s->scratch, s->in, s->offsets[s->members], false);
    const struct mpi_call call = {.kind = HVD_ALLREDUCE,
                                  .dtype = s->plan.dtype,
                                  .op = s->plan.op,
                                  .in = s->in == s->out ? s->scratch : s->in,
                                  .out = s->out,
                                  .count = (int)(s->offsets[s->members] / s->elem)};
    return s->here->plugin->start(s->comm, &call, &s->one);
}

static int one_step(void *ctx)
{
    struct mpi_sum *s = ctx;
    int rc = s->asked ? 0 : begin_one(s);
    s->asked = true;
    if (rc == 0)
        rc = s->here->plugin->test(&s->one);
    if (rc == 0 && (s->plan.divisor > 1 || s->plan.postscale != 1.0)) {
        static const bool prescaled[] = {true};
        const void *src[] = {s->out};
        reduce(&s->plan, s->out, src, 1, s->offsets[s->members] / s->elem, prescaled, true, false);
    }
    return rc;
}

/* ---- common --------------------------------------------------------------------------------- */

int mpi_sum_start(struct mpi_sum *s)
{
    size_t segment = longest(s), count = s->offsets[s->members] / s->elem;
    bool ring = segment >= RING_MIN || count > INT_MAX / 2;
    s->block = ring ? block_of(segment, s->near) : 0;
    s->asked = false;
    if (s->block)
        start_ring(s);
    mpi_task_start(s->here, &s->task, s->block ? ring_step : one_step, s);
    return 0;
}

int mpi_sum_progress(struct mpi_sum *s)
{
    return mpi_task_progress(s->here, &s->task);
}

bool mpi_sum_stop(struct mpi_sum *s)
{
    return mpi_task_stop(s->here, &s->task);
}
