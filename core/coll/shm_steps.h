/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_steps: the numbered steps of a host's seats: where a step's cell of staging is, who has told
 * what about it, and what this seat tells.
 *
 * Private to core/coll/shm_*. A flag holds how many steps its seat has finished in this generation;
 * steps are numbered across runs and operations. Step g uses cell g % cells of every seat and waits
 * until all seats are done with step g - cells. At the begin of a generation every seat tells that
 * it has left the former one, and nothing is written before all have. Under the progress lock.
 */
#ifndef HVD_COLL_SHM_STEPS_H
#define HVD_COLL_SHM_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/mesh.h"
#include "core/transport/shm.h"

#define SHM_SLICE_MAX (128u << 10) /* bytes of one owner in one cell */

/* What a seat tells about its steps. */
enum shm_tell {
    SHM_IN,  /* the cell holds its input */
    SHM_RED, /* the cell holds its part of the result */
    SHM_OUT, /* it reads nobody's cell any more */
};

/* Waits for one stamp of several seats: those that were seen are not looked at again. */
struct shm_watch {
    uint64_t need;
    int seen;
};

struct shm_steps {
    struct mesh *mesh;
    struct shm *shm;
    uint64_t given; /* steps of runs so far */
    uint64_t small; /* operations beside the flags so far */
    uint32_t generation;
    bool entered; /* generation is valid */
    bool elastic; /* see shm_steps_may_return() */
    size_t cell;  /* bytes, a multiple of SHM_LINE */
    unsigned cells;
    struct shm_watch room;
};

void shm_steps_init(struct shm_steps *s, struct mesh *mesh);

/* At the start of a run: tells and counts anew when the generation is another. */
void shm_steps_enter(struct shm_steps *s);

/* This seat has finished steps 0..count-1; wakes who sleeps. */
void shm_steps_tell(struct shm_steps *s, enum shm_tell what, uint64_t count);

/* The same where only these n seats wait for it. */
void shm_steps_tell_some(struct shm_steps *s, enum shm_tell what, uint64_t count, const int *seats,
                         int n);

static inline _Atomic uint64_t *shm_steps_flag(struct shm_flags *flags, enum shm_tell what)
{
    return what == SHM_IN ? &flags->in : what == SHM_RED ? &flags->red : &flags->out;
}

/* True when the first `seats` seats have told that they finished count steps. */
static inline bool shm_steps_told(const struct shm_steps *s, struct shm_watch *w,
                                  enum shm_tell what, int seats, uint64_t count)
{
    uint64_t need = shm_stamp(s->generation, count);
    if (w->need != need)
        *w = (struct shm_watch){.need = need};
    for (; w->seen < seats; w->seen++)
        if (atomic_load_explicit(shm_steps_flag(shm_flags_of(s->shm, w->seen), what),
                                 memory_order_acquire) < need)
            return false;
    return true;
}

/* Steps that a seat has told in this generation; 0 when it is in a later one: it has finished, or
 * the operation was cancelled there and is not yet here. */
static inline uint64_t shm_steps_count(const struct shm_steps *s, int seat, enum shm_tell what)
{
    uint64_t flag = atomic_load_explicit(shm_steps_flag(shm_flags_of(s->shm, seat), what),
                                         memory_order_acquire);
    if (flag >= shm_stamp(s->generation + 1, 0))
        return 0;
    return flag > shm_stamp(s->generation, 0) ? flag - shm_stamp(s->generation, 0) : 0;
}

/* May what is done here be returned? In an elastic job not where somebody has given the epoch up
 * already: what he has reported of the operation is what he saw then, and if this rank dies next,
 * nobody knows that it was done (engine/REPAIR.md, Which results are safe). He writes the abort
 * word before he looks at the flags; this rank has written its last flag, with a fence behind it
 * (shm_ring_all), before it looks at the word. So he sees all that this rank has seen, or this rank
 * sees the word. */
static inline bool shm_steps_may_return(const struct shm_steps *s)
{
    return !s->elastic || !shm_aborted(s->shm);
}

/* True when step g may be written to this seat's cell. */
static inline bool shm_steps_room(struct shm_steps *s, uint64_t g)
{
    uint64_t before = g + 1 > s->cells ? g + 1 - s->cells : 0;
    return shm_steps_told(s, &s->room, SHM_OUT, s->shm->seats, before);
}

static inline uint8_t *shm_steps_cell(const struct shm_steps *s, int seat, uint64_t g)
{
    return shm_staging_of(s->shm, seat) + g % s->cells * s->cell;
}

#endif
