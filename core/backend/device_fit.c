/* SPDX-License-Identifier: Apache-2.0
 *
 * device_fit: see device_private.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/backend/device_private.h"
#include "core/base/cleanup.h"

/* A set of ranks that can work together. */
struct crew {
    const struct device_ways *ways;
    const struct said *all;
    struct nccl_fact *facts; /* [n] of them */
    int n;
    bool fallback, kernels;
};

static void add(struct crew *c, int rank)
{
    const struct said *s = &c->all[rank];
    c->fallback = (c->n == 0 || c->fallback) && s->fallback;
    c->kernels = (c->n == 0 || c->kernels) && s->nccl.kernels;
    c->facts[c->n] = s->nccl.fact;
    c->facts[c->n++].rank = rank;
}

/* Can these ranks work together, with NCCL or (where all allow it) without? */
static bool has_way(const struct crew *c, bool *ret_nccl, struct err *ret_why)
{
    char line[sizeof(ret_why->msg)];
    *ret_nccl = c->ways->nccl && nccl_facts_judge(c->facts, c->n, line, sizeof(line)) != NCCL_BAD;
    if (!*ret_nccl && c->ways->nccl)
        err_set(ret_why, ENOTSUP, "%s", line);
    return *ret_nccl || c->ways->staged || c->fallback;
}

/* Returns whether the rank that was added last has kernels, if the others use them with NCCL.
 * kernels: the others have them. */
static bool is_alike(const struct crew *c, int rank, bool kernels, bool nccl, struct err *ret_why)
{
    const struct said *s = &c->all[rank];
    if (nccl && kernels && !s->nccl.kernels)
        err_set(ret_why, ENOTSUP,
                "it lacks hvd's kernels for GPUs, which the other ranks have: set HVD_KERNELS to "
                "the file "
                "hvd_kernels.fatbin");
    else
        return true;
    return false;
}

/* Adds a rank to the set; false: it does not fit. */
static bool take(struct crew *c, int rank, struct err *ret_why)
{
    const struct crew before = *c;
    bool nccl;
    add(c, rank);
    if (has_way(c, &nccl, ret_why) && is_alike(c, rank, before.kernels, nccl, ret_why))
        return true;
    *c = before;
    return false;
}

static int count_newcomers(const struct said *all, int size)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        n += all[r].newcomer;
    return n;
}

int device_fit(const struct device_ways *ways, const struct said *all, int size, int me,
               bool *ret_unfit, struct err *ret_why)
{
    int came = count_newcomers(all, size), n = 0;
    if (came == 0 || came == size)
        return 0;
    auto_free struct nccl_fact *facts = calloc((size_t)size, sizeof(*facts));
    struct crew c = {.ways = ways, .all = all, .facts = facts};
    bool nccl;
    if (!facts)
        return err_set(ret_why, ENOMEM, "no memory for the reports of %d ranks", size);
    for (int r = 0; r < size; r++)
        if (!all[r].newcomer)
            add(&c, r);
    if (!has_way(&c, &nccl, ret_why))
        return 0;
    for (int r = 0; r < size; r++) {
        struct err why = {0};
        if (!all[r].newcomer || take(&c, r, &why))
            continue;
        ret_unfit[r] = true;
        if (n++ == 0 || r == me)
            *ret_why = why;
    }
    return n;
}
