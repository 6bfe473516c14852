/* SPDX-License-Identifier: Apache-2.0
 *
 * decision: takes the reports of all ranks of a new epoch and decides what each rank does about the
 * operations that were in flight in the old epoch: one of the host's, several batches on GPUs.
 * Pure. REPAIR.md gives the reasons.
 *
 * A report travels in front of a rank's card and is untrusted input.
 */
#ifndef HVD_ENGINE_DECISION_H
#define HVD_ENGINE_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define REPORT_PIECES_MAX 512
#define REPORT_BYTES_MAX  (29 + 4 * REPORT_PIECES_MAX) /* that report_put() writes */

struct report {
    /* the rank was in an epoch before; otherwise all other fields are meaningless */
    bool has_state;
    bool fresh;    /* it is still in hvd_init() and has no training state */
    bool started;  /* this rank has started operation number `done` */
    bool whole;    /* this rank has the whole result of that operation */
    uint64_t done; /* operations that this rank has finished */
    uint32_t pieces;
    uint32_t final[REPORT_PIECES_MAX]; /* number of final steps, for each piece */
    /* Batches of the GPU lane that this rank has finished, and that are whole on this rank. */
    uint64_t gpu_done, gpu_whole;
};

void report_put(const struct report *r, struct buf *out);

/* Parses a report at the front of buf and removes it. -EPROTO when it is malformed. */
int report_take(struct buf *buf, struct report *ret, struct err *err);

enum decision_what {
    /* no operation was in flight on this rank, or all ranks run it again from the start */
    DECISION_NOTHING,
    /* another rank has finished the operation, so this rank finishes it as well */
    DECISION_FINISH,
    DECISION_REST, /* final pieces stay; the survivors run the remaining part */
};

struct decision {
    enum decision_what what; /* for the calling rank */
    /* operations finished on every rank once all ranks have followed the decision */
    uint64_t done;
    uint32_t pieces;
    uint32_t final[REPORT_PIECES_MAX];
    /* Batches of the GPU lane that are finished, with the results that each rank has. All others
     * are run again. */
    uint64_t gpu_done;
};

/* Computes the decision for rank `me` from the reports of all n ranks of the new epoch.
 * departed_done: the largest number of operations that any departed rank had finished. The same
 * reports give a consistent decision on every rank. -EPROTO: the reports cannot belong to one job.
 */
int decision_make(const struct report *reports, int n, uint64_t departed_done, int me,
                  struct decision *ret, struct err *err);

#endif
