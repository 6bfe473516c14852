/* SPDX-License-Identifier: Apache-2.0
 *
 * set_units: what a rank says, in front of its card, about its fixed sets: the places that each of
 * them needs. Every rank of the new epoch reads what all others say, so all of them know which
 * ranks are part of a broken unit (units.h), and which sets are fixed. In jobs that keep places
 * only; in others no rank says anything. With the progress lock held.
 */
#ifndef HVD_ENGINE_SET_UNITS_H
#define HVD_ENGINE_SET_UNITS_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/engine/units.h"

struct engine;
struct set;

/* That set_units_put() writes. */
#define SET_UNITS_BYTES_MAX 8192

/* What has been read of one epoch's cards. Zero-initialized. */
struct set_units {
    struct units units;
    int *places; /* [BOOT_SIZE_MAX] of the set that is being read */
};

/* Whether a card has room for one more fixed set, beside all fixed sets of which this rank may ever
 * have to tell: its own, and those of hvd_set_add() that it knows to be fixed, whose members may be
 * lost. -E2BIG. */
int set_units_fit(const struct engine *e, const struct set *more, struct err *err);

/* Writes this rank's fixed sets. A set that has no room is left out: it is one that this rank has
 * learned to be fixed, and the rank that has called hvd_set_fix() tells of it. */
void set_units_put(const struct engine *e, struct buf *out);

/* Takes those of another rank from the front of buf, which is untrusted. A set of this rank's that
 * the other one calls fixed is fixed. -EPROTO; -ENOMEM. */
int set_units_take(struct engine *e, struct set_units *u, struct buf *buf, struct err *err);

/* All cards have been read: sets boot.broken. */
int set_units_end(struct engine *e, struct set_units *u, struct err *err);

void set_units_fini(struct set_units *u);

#endif
