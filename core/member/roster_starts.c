/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_starts: see roster_starts.h.
 */
#include "core/member/roster_starts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int roster_starts_reserve(struct roster_starts *s, int room)
{
    if (room <= s->room)
        return 0;
    struct roster_start *grown = realloc(s->list, (size_t)room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    s->list = grown;
    s->room = room;
    return 0;
}

void roster_starts_fini(struct roster_starts *s)
{
    free(s->list);
    *s = (struct roster_starts){0};
}

void roster_starts_add(struct roster_starts *s, struct roster_start start)
{
    if (s->n < s->room)
        s->list[s->n++] = start;
}

void roster_starts_remove(struct roster_starts *s, int i)
{
    s->n--;
    memmove(&s->list[i], &s->list[i + 1], (size_t)(s->n - i) * sizeof(*s->list));
}

bool roster_starts_forget(struct roster_starts *s)
{
    if (s->n == 0 || !s->list[s->n - 1].replaces)
        return false;
    s->n--;
    return true;
}

uint64_t roster_starts_due(const struct roster_starts *s)
{
    uint64_t due = UINT64_MAX;
    for (int i = 0; i < s->n; i++)
        due = s->list[i].due < due ? s->list[i].due : due;
    return due;
}
