/* SPDX-License-Identifier: Apache-2.0
 *
 * set_claims: what a rank says, in front of its card, about sets that their members alone make and
 * remove. The last meeting of hvd_set_form() or hvd_set_remove() may have ended on some members
 * when the epoch ends, and its answer may never reach the others. Every rank of the new epoch reads
 * what all others claim, so either all members know that the meeting has ended well, or no rank of
 * the new epoch knows it, and they begin anew. With the progress lock held.
 */
#ifndef HVD_ENGINE_SET_CLAIMS_H
#define HVD_ENGINE_SET_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct engine;
struct set;

/* Sets that can be claimed at a time. Of removed ones the newest: as long as a member has not heard
 * of a removal, the thread that has is still in it, so more can be missing only after as many more
 * removals. */
#define SET_CLAIMS_MAX       64
#define SET_CLAIMS_BYTES_MAX (6 + 8 * SET_CLAIMS_MAX) /* that set_claims_put() writes */

struct set_claims {
    uint32_t serial; /* the highest one of a rendezvous that this rank, or another, has heard of */
    /* Sets of hvd_set_form() from the last meeting on, until this rank knows that all members know
     * its result. */
    struct set *forming[SET_CLAIMS_MAX];
    size_t nforming;
    int removed[SET_CLAIMS_MAX]; /* the numbers of removed sets, a ring */
    size_t nremoved;
};

/* The last meeting of the set begins, and is over for all members. -EBUSY: too many threads are in
 * hvd_set_form(). */
int set_claims_begin(struct engine *e, struct set *set, struct err *err);
void set_claims_end(struct engine *e, struct set *set);

/* All members have agreed to remove the set. */
void set_claims_removed(struct engine *e, int set);

/* Writes this rank's claims. */
void set_claims_put(const struct engine *e, struct buf *out);

/* Takes another rank's claims from the front of buf, which is untrusted. A set that this rank forms
 * and that the other one says is made, is made (set.made); one that this rank is removing, and that
 * the other one has removed, is removed (set.removed). -EPROTO. */
int set_claims_take(struct engine *e, struct buf *buf, struct err *err);

#endif
