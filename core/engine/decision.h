/* SPDX-License-Identifier: Apache-2.0
 *
 * decision: what the ranks of a new epoch make of the operation that was under way in the old one:
 * the report that each of them gives, and what follows from all of them. Pure; REPAIR.md has the
 * why.
 *
 * A report travels in front of the card and is foreign bytes.
 */
#ifndef HVD_ENGINE_DECISION_H
#define HVD_ENGINE_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define REPORT_PIECES_MAX 512

struct report {
    bool has_state; /* it was in an epoch before; else the rest is nothing */
    bool fresh;     /* it is still in hvd_init(): its user has no state */
    bool started;   /* operation `done` was begun here */
    bool whole;     /* its result is here already */
    uint64_t done;  /* operations finished here */
    uint32_t pieces;
    uint32_t final[REPORT_PIECES_MAX]; /* steps of each piece that are final */
};

void report_put(const struct report *r, struct buf *out);

/* Takes a report off the front of buf. -EPROTO. */
int report_take(struct buf *buf, struct report *ret, struct err *err);

enum decision_what {
    DECISION_NOTHING, /* no operation was under way here, or it is to be begun anew by all */
    DECISION_FINISH,  /* others have finished it: this rank can, too */
    DECISION_REST,    /* what is final stays, the ranks that are left do the rest */
};

struct decision {
    enum decision_what what; /* for the rank that asks */
    uint64_t done;           /* operations finished everywhere once all have followed it */
    uint32_t pieces;
    uint32_t final[REPORT_PIECES_MAX];
};

/* From the reports of all ranks of the new epoch, for the one at place me. left_done: operations
 * that somebody had finished who has left the job. The same reports give the same decision
 * everywhere. -EPROTO: they cannot be of one job. */
int decision_make(const struct report *reports, int n, uint64_t left_done, int me,
                  struct decision *ret, struct err *err);

#endif
