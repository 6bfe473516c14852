/* SPDX-License-Identifier: Apache-2.0
 *
 * expectations: see expectations.h.
 */
#include "operator/driver/expectations.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"

int expectations_add(struct expectations *w, const struct expectation *one)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 4;
        struct expectation *grown = realloc(w->all, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        w->all = grown;
        w->cap = cap;
    }
    w->all[w->n++] = *one;
    w->until = deadline_in_ms(EXPECTATIONS_MS);
    return 0;
}

bool expectations_satisfied(struct expectations *w,
                            bool (*is_satisfied)(void *arg, const struct expectation *one),
                            void *arg)
{
    while (w->n > 0 && is_satisfied(arg, &w->all[w->n - 1]))
        w->n--;
    if (w->n > 0 && !deadline_passed(w->until))
        return false;
    expectations_fini(w);
    return true;
}

void expectations_fini(struct expectations *w)
{
    free(w->all);
    *w = (struct expectations){0};
}
