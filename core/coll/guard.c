/* SPDX-License-Identifier: Apache-2.0
 *
 * guard: see guard.h.
 */
#include "core/coll/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct guard *g, size_t tensors, size_t bytes)
{
    if (tensors > g->cap) {
        struct coll_tensor *grown = realloc(g->tensors, 2 * tensors * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        g->tensors = grown;
        g->cap = 2 * tensors;
    }
    if (bytes > g->saved_cap) {
        free(g->saved);
        g->saved_cap = (bytes + 4095) / 4096 * 4096;
        g->saved = aligned_alloc(4096, g->saved_cap);
        if (!g->saved) {
            g->saved_cap = 0;
            return -ENOMEM;
        }
    }
    return 0;
}

int guard_begin(struct guard *g, const struct coll_op *op, const struct coll_op **ret)
{
    size_t elem = hvd_dtype_size(op->dtype), bytes = 0, at = 0;
    bool reduces = op->kind == HVD_ALLREDUCE || op->kind == HVD_REDUCESCATTER;
    for (size_t i = 0; reduces && i < op->n; i++)
        bytes += coll_destroys_input(&op->tensors[i]) ? op->tensors[i].count * elem : 0;
    g->on = true;
    g->behind = false;
    g->n = 0;
    *ret = op;
    if (bytes == 0)
        return 0;
    int rc = make_room(g, op->n, bytes);
    if (rc < 0)
        return rc;
    memcpy(g->tensors, op->tensors, op->n * sizeof(*g->tensors));
    for (size_t i = 0; i < op->n; i++) {
        struct coll_tensor *t = &g->tensors[i];
        if (!coll_destroys_input(t))
            continue;
        t->in = memcpy(g->saved + at, t->in, t->count * elem);
        at += t->count * elem;
    }
    g->n = op->n;
    g->op = *op;
    g->op.tensors = g->tensors;
    *ret = &g->op;
    return 0;
}

void guard_restore(const struct guard *g)
{
    size_t elem = hvd_dtype_size(g->op.dtype);
    for (size_t i = 0; i < g->n; i++) {
        const struct coll_tensor *t = &g->tensors[i];
        const uint8_t *in = t->in;
        if (in >= g->saved && in < g->saved + g->saved_cap)
            memcpy(t->out, in, t->count * elem);
    }
}

void guard_fini(struct guard *g)
{
    free(g->tensors);
    free(g->saved);
    *g = (struct guard){0};
}
