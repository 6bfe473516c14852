/* SPDX-License-Identifier: Apache-2.0
 *
 * set_table: how ranks that join a job learn of its sets. Sets of hvd_set_add() they all have to
 * know, because all ranks of the job remove such a set together. Where places are kept they are in
 * the sets that have their place, also in those of hvd_set_form(), of which only members can tell.
 */
#ifndef HVD_ENGINE_SET_TABLE_H
#define HVD_ENGINE_SET_TABLE_H

#include "core/base/err.h"

struct engine;
struct world;

/* What the table of sets needs when the user enters a world. Each rank says in the last vote before
 * that what it knows itself, and the largest value holds for all of them (world.table). */
enum {
    TABLE_KEPT,
    TABLE_SHARED, /* some ranks are new */
    TABLE_GAINS,  /* ranks come to sets (set_gain.h): no request is taken before they have */
};

/* What this rank says. (lock) */
int set_table_due(const struct engine *e, const struct world *w);

/* All ranks of the user's world w have entered it, and w->table is what they have agreed on. Unless
 * that is TABLE_KEPT each rank tells which sets it knows, so any rank may be lost meanwhile. Then,
 * in any case, the groups of sets by rule are made anew (set_move.h). -EINVAL, the same on all
 * ranks: they have computed different groups. A rank that fails with another error leaves the job.
 * Without the progress lock; blocks as hvd_wait(). */
int set_table_share(struct engine *e, struct world *w, struct err *err);

#endif
