/* SPDX-License-Identifier: Apache-2.0
 *
 * waits: see waits.h.
 */
#include "operator/driver/waits.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"

int waits_add(struct waits *w, const struct wait *one)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 4;
        struct wait *grown = realloc(w->all, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        w->all = grown;
        w->cap = cap;
    }
    w->all[w->n++] = *one;
    w->until = deadline_in_ms(WAITS_MS);
    return 0;
}

bool waits_over(struct waits *w, bool (*is_over)(void *arg, const struct wait *one), void *arg)
{
    while (w->n > 0 && is_over(arg, &w->all[w->n - 1]))
        w->n--;
    if (w->n > 0 && !deadline_passed(w->until))
        return false;
    waits_fini(w);
    return true;
}

void waits_fini(struct waits *w)
{
    free(w->all);
    *w = (struct waits){0};
}
