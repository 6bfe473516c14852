/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_choice: see hier_choice.h.
 */
#include "core/backend/hier_choice.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/env.h"

#define NAME "HVD_HIERARCHICAL_ALLREDUCE"

int hier_wish_read(enum hier_wish *ret, struct err *err)
{
    bool yes;
    int rc = env_bool("HIERARCHICAL_ALLREDUCE", false, &yes, err);
    if (rc == 0)
        *ret = !env_get("HIERARCHICAL_ALLREDUCE") ? HIER_UNSET : yes ? HIER_YES : HIER_NO;
    return rc;
}

static const char *word(unsigned wish)
{
    return wish == HIER_YES ? "1" : wish == HIER_NO ? "0" : "not set";
}

/* Writes what the job lacks for two levels. Returns 0 if it lacks nothing. */
static int lacks(const struct hier_facts *f, char *dst, size_t size)
{
    if (f->hosts == 1)
        return snprintf(dst, size, "there is one host");
    for (int host = 1; host < f->hosts; host++)
        if (f->local_sizes[host] != f->local_sizes[0])
            return snprintf(dst, size, "one host has %d of the ranks, another one %d",
                            f->local_sizes[0], f->local_sizes[host]);
    if (f->local_sizes[0] == 1)
        return snprintf(dst, size, "every host has one rank");
    if (!f->kernels)
        return snprintf(dst, size, "not every rank has hvd's kernels (HVD_KERNELS)");
    return 0;
}

int hier_choose(const struct hier_facts *f, struct err *ret_why)
{
    char text[200];
    for (int r = 1; r < f->size; r++)
        if (f->wishes[r] != f->wishes[0])
            return err_set(ret_why, ENOTSUP,
                           NAME " is %s on rank 0 and %s on rank %d: it must be the same on every "
                                "rank",
                           word(f->wishes[0]), word(f->wishes[r]), r);
    bool asked = f->wishes[0] == HIER_YES;
    const char *because = asked                     ? NAME "=1"
                          : f->wishes[0] == HIER_NO ? NAME "=0"
                          : f->sockets              ? "NCCL has only sockets between the hosts"
                                                    : "NCCL has more than sockets between hosts";
    bool wished = asked || (f->wishes[0] == HIER_UNSET && f->sockets);
    bool used = wished && lacks(f, text, sizeof(text)) == 0;
    if (used || !wished)
        snprintf(ret_why->msg, sizeof(ret_why->msg), "%s", because);
    else
        snprintf(ret_why->msg, sizeof(ret_why->msg), "%s%s%s", asked ? because : "",
                 asked ? ", but " : "", text);
    return used;
}
