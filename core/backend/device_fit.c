/* SPDX-License-Identifier: Apache-2.0
 *
 * device_fit: see device_private.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/backend/device_private.h"
#include "core/base/cleanup.h"

/* The ranks that were there before, and joiners that fit them. */
struct crew {
    const struct device_ways *ways;
    struct nccl_fact *facts; /* [n] of them */
    int n;
    bool fallback, kernels; /* all of them allow the host's memory; all of them have kernels */
};

static bool can_use_nccl(const struct crew *c, struct err *ret_why)
{
    char line[sizeof(ret_why->msg)];
    if (nccl_facts_judge(c->facts, c->n, line, sizeof(line)) != NCCL_BAD)
        return true;
    err_set(ret_why, ENOTSUP, "%s", line);
    return false;
}

static enum device_way way_of(const struct crew *c)
{
    struct err why = {0};
    if (c->ways->nccl && can_use_nccl(c, &why))
        return DEVICE_NCCL;
    return c->ways->staged || c->fallback ? DEVICE_STAGED : DEVICE_NONE;
}

/* Returns whether a joiner fits, and adds it to the crew if so. */
static bool take(struct crew *c, enum device_way way, const struct nccl_fact *joiner,
                 struct err *ret_why)
{
    c->facts[c->n++] = *joiner;
    if (way == DEVICE_STAGED && !c->ways->staged && !joiner->fallback)
        err_set(ret_why, ENOTSUP,
                "the other ranks' tensors go through the host's memory, which it does not allow: "
                "set HVD_GPU_FALLBACK=1");
    else if (way == DEVICE_NCCL && c->kernels && !joiner->kernels)
        err_set(ret_why, ENOTSUP,
                "it lacks hvd's kernels for GPUs, which the other ranks have: set HVD_KERNELS to "
                "the file hvd_kernels.fatbin");
    else if (way == DEVICE_STAGED || can_use_nccl(c, ret_why))
        return true;
    c->n--;
    return false;
}

int device_fit(const struct device_ways *ways, const struct nccl_fact *all, int size, int me,
               bool *ret_unfit, struct err *ret_why)
{
    int n = 0;
    auto_free struct nccl_fact *facts = calloc((size_t)size, sizeof(*facts));
    struct crew c = {.ways = ways, .facts = facts, .fallback = true, .kernels = true};
    if (!facts)
        return err_set(ret_why, ENOMEM, "no memory for the reports of %d ranks", size);
    for (int r = 0; r < size; r++) {
        if (all[r].newcomer)
            continue;
        c.facts[c.n++] = all[r];
        c.fallback = c.fallback && all[r].fallback;
        c.kernels = c.kernels && all[r].kernels;
    }
    enum device_way way = c.n > 0 && c.n < size ? way_of(&c) : DEVICE_NONE;
    for (int r = 0; r < size && way != DEVICE_NONE; r++) {
        struct err why = {0};
        if (!all[r].newcomer || take(&c, way, &all[r], &why))
            continue;
        ret_unfit[r] = true;
        if (n++ == 0 || r == me)
            *ret_why = why;
    }
    return n;
}
