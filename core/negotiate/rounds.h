/* SPDX-License-Identifier: Apache-2.0
 *
 * rounds: the root's memory of what came, to see when it repeats itself.
 *
 * A round ends where a tensor comes that the round has had already. Rounds are compared as sets
 * (tensors become ready in another order each time); programs may alternate, so the last rounds are
 * compared with those Q rounds before for every Q up to ROUNDS_PERIOD. Beside it stands the log
 * itself, from which a plan is made. Called by negotiate on the root only.
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
    uint64_t hash; /* of the set of ids */
    uint32_t count;
};

/* One tensor of the log. */
struct log_entry {
    uint64_t id;
    uint64_t sum;    /* of the hashes of all ids up to here; rounds_log() sets it */
    uint64_t number; /* of its batch */
    uint64_t after;  /* batches that were done on the root when it was submitted there */
    bool last;       /* of its batch */
    bool timer;      /* its batch was flushed by the timer */
};

struct rounds {
    struct round cur;
    uint64_t serial;                /* of cur; tensors remember it */
    struct round kept[ROUNDS_KEPT]; /* ring */
    uint64_t nkept;
    uint32_t run[ROUNDS_PERIOD + 1]; /* [q]: how many rounds on end equal the one q before */
    int best;                        /* q with the longest run */
    struct log_entry *log;           /* ring of ROUNDS_LOG, made when first needed */
    uint64_t nlog;
};

void rounds_init(struct rounds *r);
void rounds_fini(struct rounds *r);

/* Forgets everything but the serial. */
void rounds_reset(struct rounds *r);

/* A tensor has come; *seen is its memory of the last round it came in. id 0: it has none. */
void rounds_arrive(struct rounds *r, uint64_t id, uint64_t *seen);

/* A tensor was logged. */
int rounds_log(struct rounds *r, const struct log_entry *entry);

/* The round has everything that the round it should equal had. */
bool rounds_complete(const struct rounds *r);

/* When everything that came is logged: how many tensors at the end of the log make up one period,
 * of which `times` have come one after the other; 0: there is no such period. Where it begins in
 * the program does not matter. */
uint32_t rounds_period(const struct rounds *r, uint32_t times);

static inline const struct log_entry *rounds_at(const struct rounds *r, uint64_t place)
{
    return &r->log[place & (ROUNDS_LOG - 1)];
}

#endif
