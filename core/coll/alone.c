/* SPDX-License-Identifier: Apache-2.0
 *
 * alone: every collective in a job of one rank: scales, averages and copies.
 */
#include <string.h>

#include <hvd.h>

#include "core/coll/algorithms.h"

static bool alone_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return mesh->size == 1;
}

static int alone_start(struct coll *coll, void *state, struct err *err)
{
    return 0;
}

static int alone_progress(struct coll *coll, void *state)
{
    const struct coll_op *op = coll->op;
    if (op->kind == HVD_BARRIER)
        return 0;
    struct reduce_plan plan = coll_reduce_plan(op);
    bool sums = op->kind == HVD_ALLREDUCE || op->kind == HVD_REDUCESCATTER;
    for (size_t i = 0; i < op->n; i++) {
        const struct coll_tensor *t = &op->tensors[i];
        if (t->count == 0)
            continue;
        if (sums)
            reduce(&plan, t->out, &t->in, 1, t->count, NULL, true, false);
        else if (t->out && t->out != t->in)
            memcpy(t->out, t->in, t->count * hvd_dtype_size(op->dtype));
    }
    return 0;
}

const struct algorithm alone_algorithm = {
    .name = "alone",
    .applies = alone_applies,
    .start = alone_start,
    .progress = alone_progress,
};
