/* SPDX-License-Identifier: Apache-2.0
 *
 * cycles: rank 0 of the world keeps which ranks are blocked, and finds operations that wait for
 * each other.
 *
 * When a set, or the world, inquires about a tensor that has waited for the stall time (stall.c),
 * each of its ranks that has not submitted the tensor and is blocked in another operation tells
 * rank 0 so. The sets need not know of each other. Operations that wait for each other stay so, and
 * their ranks tell that again in each stall period.
 *
 * Pure, as negotiate.h: no I/O, no clock of its own; under the progress lock.
 */
#ifndef HVD_NEGOTIATE_CYCLES_H
#define HVD_NEGOTIATE_CYCLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/buf.h"

enum {
    CYCLES_TEXT = 1000, /* bytes of a report */
    CYCLES_GROUP = 192, /* of the text of a set, with its end */
};

struct blocked_in {
    int set;                  /* 0: the world */
    char group[CYCLES_GROUP]; /* "set 1 (ranks 0, 2)"; of the world "" */
    char name[HVD_MAX_NAME + 1];
};

/* A rank has not submitted an operation that other ranks have submitted, and one of its threads is
 * blocked in another operation. */
struct blocked {
    int rank;          /* in the world */
    uint64_t since_ns; /* so long the operation that it waits in has been in flight here */
    struct blocked_in lacks, waits;
};

void blocked_write(const struct blocked *b, struct buf *out);

/* Reads what blocked_write() wrote. The bytes are untrusted. ranks: of the world. -EPROTO. */
int blocked_read(struct reader *r, int ranks, struct blocked *ret);

/* A rank is blocked in a message, and asks the rank at the other end, which may be blocked in
 * another operation. Ranks are numbers in the world. */
struct asked {
    int set;
    int asker, peer;
    bool sends; /* the asker sends */
    uint32_t tag;
};

void asked_write(const struct asked *a, struct buf *out);
int asked_read(struct reader *r, int ranks, struct asked *ret);

/* The name of a message, the same at both ends. */
void asked_name(const struct asked *a, char *name, size_t size);

struct cycles;

/* period: the stall time, ns. NULL: no memory. */
struct cycles *cycles_create(uint64_t period);

/* NULL is allowed. */
void cycles_destroy(struct cycles *c);

/* Stores a rank's report that it is blocked. Drops the report if the tables of operations or edges
 * are full. */
void cycles_add(struct cycles *c, const struct blocked *b, uint64_t now);

/* Calls say for each cycle that was found. An operation is in one of them at most in a period.
 * Returns when to call it next (UINT64_MAX: not before the next cycles_add()). */
uint64_t cycles_tick(struct cycles *c, uint64_t now, void (*say)(void *ctx, const char *text),
                     void *ctx);

#endif
