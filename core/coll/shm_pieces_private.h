/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_pieces_private: the internals of shm_pieces, for shm_pieces.c (runs) and shm_settle.c (how
 * survivors finish a run after a seat was lost).
 */
#ifndef HVD_COLL_SHM_PIECES_PRIVATE_H
#define HVD_COLL_SHM_PIECES_PRIVATE_H

#include "core/coll/shm_choice.h"
#include "core/coll/shm_cut.h"
#include "core/coll/shm_pieces.h"
#include "core/coll/shm_steps.h"

/* The units in which a run becomes final, and in which survivors can finish it: each owner's
 * slices separately; whole steps; all or nothing. */
enum shm_kind { SHM_SLICES, SHM_STEPS_WHOLE, SHM_ALL };

/* A kind of run. Stages get the number of the step within the run. */
struct run_ops {
    enum shm_kind kind;
    void (*in)(struct shm_pieces *s, uint64_t step);
    void (*mid)(struct shm_pieces *s, uint64_t step); /* NULL: none */
    void (*out)(struct shm_pieces *s, uint64_t step);
    bool (*may_in)(const struct shm_pieces *s, uint64_t step); /* NULL: always */
    enum shm_tell out_needs; /* what the sources must have published about a step before out */
};

struct shm_pieces {
    struct shm_steps steps;
    struct shm_choice choice;
    int seat, seats;

    /* The current run. */
    const struct run_ops *run;
    uint64_t base;         /* number of its first step */
    uint64_t n;            /* number of its steps */
    uint64_t in, mid, out; /* steps done of each stage */
    bool gives, takes;     /* gives: this seat fills cells; takes: it reads cells of other seats */
    int sources;           /* how many seats the stage out waits for */
    size_t slice;          /* bytes of one owner's slice in one cell */
    struct shm_cut cut;
    struct reduce_plan plan;
    bool finish;
    bool far;    /* staging is written past the cache */
    bool stream; /* outputs are written past the cache */
    struct shm_watch mid_watch, out_watch;
    struct shm_walk *in_walk, *out_walk; /* [seats] */
    const void **src;                    /* [seats] */

    uint8_t *work;
    size_t ready, work_size; /* bytes */

    const uint8_t *mine; /* gather */
    uint8_t *const *outputs;
    const size_t *bytes;
};

static inline size_t elem(const struct shm_pieces *s)
{
    return s->cut.layout->elem;
}

static inline uint8_t *slice_of(const struct shm_pieces *s, int seat, int owner, uint64_t step)
{
    return shm_steps_cell(&s->steps, seat, s->base + step) + (size_t)owner * s->slice;
}

static inline size_t gather_part(const struct shm_pieces *s, int seat, uint64_t step)
{
    size_t begin = step * s->slice;
    size_t left = begin < s->bytes[seat] ? s->bytes[seat] - begin : 0;
    return left < s->slice ? left : s->slice;
}

#endif
