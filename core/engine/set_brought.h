/* SPDX-License-Identifier: Apache-2.0
 *
 * set_brought: what the members of a set have brought to their meeting in a new epoch
 * (set_repair.c): flags, and a report of their operations. Pure.
 */
#ifndef HVD_ENGINE_SET_BROUGHT_H
#define HVD_ENGINE_SET_BROUGHT_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/engine/decision.h"

struct set;

struct set_brought {
    uint8_t any, all;       /* flags that one of them, that all of them have */
    uint8_t *flags;         /* [n] */
    struct report *reports; /* [n] those of members that are not blank mean something */
    int n;
};

/* Takes it from the cards of set->boot. Call set_brought_free() also after an error. -EPROTO,
 * -ENOMEM. */
int set_brought_read(struct set *set, struct set_brought *ret, struct err *err);
void set_brought_free(struct set_brought *b);

/* The largest number of operations, and of batches of the GPU lane, that a member has finished. All
 * members have these batches whole. */
uint64_t set_brought_done(const struct set_brought *b);
uint64_t set_brought_gpu_done(const struct set_brought *b);

/* The reports of the members that are not blank, in their order. ret: [n]. Returns how many;
 * *ret_me: the index of member number `me` among them. */
int set_brought_reports(const struct set_brought *b, int me, struct report *ret, int *ret_me);

#endif
