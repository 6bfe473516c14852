/* SPDX-License-Identifier: Apache-2.0
 *
 * units: which places belong to a broken unit (SETS.md, Elastic jobs). Fixed sets that share a
 * place are one unit, and so are those that are connected by others. A unit is broken while a place
 * of it is empty. Pure: the same calls on every rank give the same answers.
 */
#ifndef HVD_ENGINE_UNITS_H
#define HVD_ENGINE_UNITS_H

#include <stdbool.h>

#include "core/base/err.h"

/* Zero-initialized: no place is filled, and there is no unit. */
struct units {
    int n;     /* places up to which something is known */
    int *next; /* [n] another place of its unit, on the way to the one that stands for the unit */
    bool *member; /* [n] in a fixed set */
    bool *filled; /* [n] a rank has it */
    bool *broken; /* [n] of the place that stands for a unit; valid after units_settle() */
};

/* A rank has the place (>= 0). -ENOMEM. */
int units_fill(struct units *u, int place, struct err *err);

/* There is a fixed set of n places. -ENOMEM. */
int units_add(struct units *u, const int *places, int n, struct err *err);

/* All places and sets are known. */
void units_settle(struct units *u);

/* After units_settle(): whether the place is part of a broken unit. */
bool units_is_broken(const struct units *u, int place);

void units_fini(struct units *u);

#endif
