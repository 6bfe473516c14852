/* SPDX-License-Identifier: Apache-2.0
 *
 * rounds: the root's record of ready tensors, for detecting that they repeat. A round ends before a
 * tensor that is in it already. Rounds are compared as sets, because tensors become ready in
 * varying order. Programs may alternate between steps, so rounds are compared with the rounds Q
 * before them, for every Q up to ROUNDS_PERIOD. It also records the log, from which a plan is made.
 * Called by negotiate on the root only.
 */
#ifndef HVD_NEGOTIATE_ROUNDS_H
#define HVD_NEGOTIATE_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ROUNDS_PERIOD = 64,   /* longest period, in rounds */
    ROUNDS_KEPT = 128,    /* finished rounds remembered */
    ROUNDS_LOG = 1 << 14, /* tensors of the log remembered: no plan is longer */
};

struct round {
    uint64_t hash; /* hash of the set of ids */
    uint32_t count;
};

/* One tensor of the log. */
struct log_entry {
    uint64_t id;
    uint64_t sum;    /* sum of the hashes of all ids up to here; set by rounds_log() */
    uint64_t number; /* number of its batch */
    uint64_t after;  /* 1 + the largest number of a batch that was done on the root when the tensor
                      was submitted there */
    uint32_t serial; /* counts the tensors that the root's rank submitted; wraps */
    bool last;       /* last tensor of its batch */
    bool timer;      /* the tensor's batch was flushed by the timer */
};

struct rounds {
    struct round cur;
    uint64_t serial;                /* number of the current round; tensors store it */
    struct round kept[ROUNDS_KEPT]; /* ring */
    uint64_t nkept;
    /* run[q]: how many rounds in a row, up to the last one, equalled the round q before them */
    uint32_t run[ROUNDS_PERIOD + 1];
    int best;              /* q with the longest run */
    struct log_entry *log; /* ring buffer of ROUNDS_LOG entries, allocated at first use */
    uint64_t nlog;
};

void rounds_init(struct rounds *r);
void rounds_fini(struct rounds *r);

/* Forgets everything but the serial. */
void rounds_reset(struct rounds *r);

/* A tensor became ready. *seen: the tensor's field for the last round it was in. id 0: not
 * cached. */
void rounds_arrive(struct rounds *r, uint64_t id, uint64_t *seen);

/* A tensor was logged. */
int rounds_log(struct rounds *r, const struct log_entry *entry);

/* Returns whether the current round has all tensors of the round it should equal. */
bool rounds_complete(const struct rounds *r);

/* Call when every ready tensor is in the log. Returns how many tensors at the end of the log
 * make up one period that has occurred `times` times in a row; 0: there is none. The period may
 * begin anywhere in the program's step. */
uint32_t rounds_period(const struct rounds *r, uint32_t times);

static inline const struct log_entry *rounds_at(const struct rounds *r, uint64_t place)
{
    return &r->log[place & (ROUNDS_LOG - 1)];
}

#endif
