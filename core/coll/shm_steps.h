/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_steps: the numbered steps of a host's seats: the staging cell of a step, what each seat has
 * published about it, and publishing for this seat. Private to core/coll/shm_*. A flag holds how
 * many steps its seat has finished in this generation; steps are numbered across runs and
 * operations. Step g uses cell g % cells of every seat and waits until all seats are done with step
 * g - cells. At the beginning of a generation every seat publishes that it has left the former one;
 * nothing is written before all have. Under the progress lock.
 */
#ifndef HVD_COLL_SHM_STEPS_H
#define HVD_COLL_SHM_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/mesh.h"
#include "core/transport/shm.h"

#define SHM_SLICE_MAX (128u << 10) /* the most bytes of one owner's slice in one cell */

/* What a seat publishes about its steps. */
enum shm_tell {
    SHM_IN,  /* the seat's cell holds its input */
    SHM_RED, /* the seat's cell holds its part of the result */
    SHM_OUT, /* the seat has read all cells of the step */
};

/* Waits for one stamp of several seats; seats that have reached it are not checked again. */
struct shm_watch {
    uint64_t need;
    int seen;
};

struct shm_steps {
    struct mesh *mesh;
    struct shm *shm;
    uint64_t given; /* steps of runs so far */
    uint64_t small; /* operations of the small path so far */
    uint32_t generation;
    bool entered; /* the generation is valid */
    bool elastic; /* see shm_steps_may_return() */
    size_t cell;  /* bytes, a multiple of SHM_LINE */
    unsigned cells;
    struct shm_watch room;
};

/* Bytes of staging of each seat that steps use, if there are so many seats. */
size_t shm_steps_staging(int seats);

void shm_steps_init(struct shm_steps *s, struct mesh *mesh);

/* Call at the start of a run. In a new generation it publishes that this seat has left the former
 * one, and counts steps from 0 again. */
void shm_steps_enter(struct shm_steps *s);

/* Publishes that this seat has finished steps 0..count-1; wakes sleeping seats. */
void shm_steps_tell(struct shm_steps *s, enum shm_tell what, uint64_t count);

/* Like shm_steps_tell(), but wakes only these n seats. */
void shm_steps_tell_some(struct shm_steps *s, enum shm_tell what, uint64_t count, const int *seats,
                         int n);

static inline _Atomic uint64_t *shm_steps_flag(struct shm_flags *flags, enum shm_tell what)
{
    return what == SHM_IN ? &flags->in : what == SHM_RED ? &flags->red : &flags->out;
}

/* Returns whether the first `seats` seats have published that they finished count steps. */
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

/* The number of steps that a seat has published in this generation. 0 if that seat is in a later
 * generation: it has finished, or the operation was cancelled there and not yet on this seat. */
static inline uint64_t shm_steps_count(const struct shm_steps *s, int seat, enum shm_tell what)
{
    uint64_t flag = atomic_load_explicit(shm_steps_flag(shm_flags_of(s->shm, seat), what),
                                         memory_order_acquire);
    if (flag >= shm_stamp(s->generation + 1, 0))
        return 0;
    return flag > shm_stamp(s->generation, 0) ? flag - shm_stamp(s->generation, 0) : 0;
}

/* Returns whether a finished operation may be returned as finished. In an elastic job it may not if
 * some rank has given the epoch up already: that rank has reported what it saw of the operation,
 * and if this rank is lost next, no rank knows that the operation was finished (engine/REPAIR.md,
 * Which results are safe). The rank that gives up writes the abort word before it reads the flags;
 * this rank writes its last flag, then a fence (shm_ring_all), before it reads the word. So either
 * that rank sees all that this one has seen, or this rank sees the word. */
static inline bool shm_steps_may_return(const struct shm_steps *s)
{
    return !s->elastic || !shm_aborted(s->shm);
}

/* Returns whether this seat's cell of step g may be written. */
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
