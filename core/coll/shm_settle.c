/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_settle: finishes a run in which a seat was lost (shm_pieces.h): how far it is final, and
 * writing the final part to the outputs. All cells are still intact, those of the lost seat, too: a
 * cell is reused only after every seat has published that it is done with it, and a seat that
 * settles publishes nothing any more.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/coll/algorithm.h"
#include "core/coll/shm_pieces_private.h"

/* ---- how far -------------------------------------------------------------------------------- */

/* How many steps of this run a seat has published. */
static uint32_t told(const struct shm_pieces *s, int seat, enum shm_tell what)
{
    uint64_t count = shm_steps_count(&s->steps, seat, what);
    uint64_t done = count > s->base ? count - s->base : 0;
    return (uint32_t)(done < s->n ? done : s->n);
}

uint32_t shm_pieces_final(const struct shm_pieces *s, uint32_t *final)
{
    uint32_t least = UINT32_MAX, out = (uint32_t)s->out;
    if (!s->run)
        return 0;
    /* Steps that this seat has copied out were final, whatever the flags show now. */
    if (s->run->kind == SHM_SLICES) {
        for (int o = 0; o < s->cut.owners; o++) {
            uint32_t red = told(s, o, SHM_RED);
            final[o] = o != s->seat && out > red ? out : red;
        }
        return (uint32_t)s->cut.owners;
    }
    for (int i = 0; i < s->seats; i++) {
        uint32_t in = told(s, i, SHM_IN);
        least = in < least ? in : least;
    }
    if (s->run->kind == SHM_STEPS_WHOLE)
        final[0] = out > least ? out : least;
    else
        final[0] = least == s->n;
    return 1;
}

/* ---- settling ------------------------------------------------------------------------------- */

/* What to do with the elements of one step. */
enum fate { IS_DONE, IS_FINAL, IS_LEFT };

struct settling {
    struct shm_pieces *s;
    struct coll_rest *rest;
    int owner;
};

static void sum_staged(struct shm_pieces *s, const struct layout_run *run, uint64_t step, size_t at)
{
    /* Reads the own input from staging, too: the original may have been overwritten. */
    for (int i = 0; i < s->seats; i++)
        s->src[i] = slice_of(s, i, 0, step) + at;
    reduce(&s->plan, run->out, s->src, s->seats, run->count, NULL, s->finish, false);
}

static int settle_step(const struct settling *g, struct shm_walk *walk, uint64_t step,
                       enum fate fate)
{
    struct shm_pieces *s = g->s;
    struct layout_run run;
    size_t at = 0;
    while (shm_cut_next(&s->cut, walk, (s->slice - at) / elem(s), &run)) {
        const struct coll_tensor t = {run.in, run.out, run.count};
        if (fate == IS_LEFT && coll_rest_add(g->rest, &t, elem(s)) < 0)
            return -ENOMEM;
        if (fate == IS_FINAL && s->run->kind == SHM_SLICES)
            reduce_copy(run.out, slice_of(s, g->owner, g->owner, step) + at, run.count * elem(s),
                        false);
        else if (fate == IS_FINAL)
            sum_staged(s, &run, step, at);
        at += run.count * elem(s);
    }
    return 0;
}

/* Processes one piece from its beginning: steps up to done are in the outputs, later ones up to
 * final are written there. */
static int settle_piece(const struct settling *g, struct shm_walk *walk, uint64_t done,
                        uint64_t final)
{
    int rc = 0;
    for (uint64_t step = 0; step < g->s->n && rc == 0; step++)
        rc = settle_step(g, walk, step, step < done ? IS_DONE : step < final ? IS_FINAL : IS_LEFT);
    return rc;
}

static int settle_vectors(struct shm_pieces *s, const uint32_t *final, struct coll_rest *rest)
{
    struct shm_walk *walks = calloc((size_t)s->cut.owners, sizeof(*walks));
    int rc = walks ? 0 : -ENOMEM;
    if (walks)
        shm_cut_walks(&s->cut, walks);
    for (int o = 0; o < s->cut.owners && rc == 0; o++) {
        const struct settling g = {s, rest, o};
        bool own = s->run->kind == SHM_SLICES && o == s->seat;
        uint64_t done = own ? s->mid : s->out, upto = final ? final[o] : s->n;
        /* This seat itself has published how far its own slice is final. */
        rc = own && upto > done ? -EPROTO : settle_piece(&g, &walks[o], done, upto);
    }
    free(walks);
    return rc;
}

int shm_pieces_settle(struct shm_pieces *s, const uint32_t *final, struct coll_rest *rest)
{
    if (!s->run)
        return 0;
    if (s->run->kind != SHM_ALL)
        return settle_vectors(s, final, rest);
    if (final && !final[0])
        return 0;
    /* s->out is advanced, because iterators only move forward and this may be called again. */
    for (; s->out < s->n; s->out++)
        s->run->out(s, s->out);
    if (s->stream)
        reduce_fence();
    return 0;
}
