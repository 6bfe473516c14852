/* SPDX-License-Identifier: Apache-2.0
 *
 * actions: see actions.h.
 */
#include "operator/reconcile/actions.h"

#include <stdlib.h>

int actions_add(struct actions *a, struct action action, struct err *err)
{
    if (a->n == a->cap) {
        int cap = a->cap ? 2 * a->cap : 8;
        struct action *grown = realloc(a->all, (size_t)cap * sizeof(*grown));
        if (!grown)
            return err_set(err, ENOMEM, "no memory");
        a->all = grown;
        a->cap = cap;
    }
    a->all[a->n++] = action;
    return 0;
}

void actions_fini(struct actions *a)
{
    free(a->all);
    hvdjob_status_fini(&a->status);
    *a = (struct actions){0};
}

const char *action_name(enum action_kind kind)
{
    static const char *const names[] = {"write status", "event",      "create group",
                                        "create pod",   "delete pod", "delete job"};
    return names[kind];
}
