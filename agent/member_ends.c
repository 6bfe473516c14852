/* SPDX-License-Identifier: Apache-2.0
 *
 * member_ends: see member_ends.h.
 */
#include "agent/member_ends.h"

#include <stdlib.h>
#include <string.h>

#include "core/member/protocol.h"

void member_ends_fini(struct member_ends *ends)
{
    free(ends->list);
    *ends = (struct member_ends){0};
}

const struct member_end *member_ends_get(const struct member_ends *ends, int member)
{
    bool known = member >= 0 && member < ends->n && ends->list[member].known;
    return known ? &ends->list[member] : NULL;
}

const struct member_end *member_ends_first(const struct member_ends *ends, int *ret_member)
{
    for (int i = 0; i < ends->n; i++) {
        if (ends->list[i].known) {
            *ret_member = i;
            return &ends->list[i];
        }
    }
    return NULL;
}

struct member_end *member_ends_entry(struct member_ends *ends, int member)
{
    int n = ends->n ? ends->n : 16;
    if (member < 0 || member >= MEMBER_NUMBER_MAX)
        return NULL;
    while (n <= member)
        n *= 2;
    if (n > ends->n) {
        struct member_end *grown = realloc(ends->list, (size_t)n * sizeof(*grown));
        if (!grown)
            return NULL;
        memset(grown + ends->n, 0, (size_t)(n - ends->n) * sizeof(*grown));
        ends->list = grown;
        ends->n = n;
    }
    return &ends->list[member];
}

void member_ends_forget(struct member_ends *ends, int member)
{
    if (member >= 0 && member < ends->n)
        ends->list[member] = (struct member_end){0};
}

int member_ends_count(const struct member_ends *ends)
{
    int n = ends->n;
    while (n > 0 && !ends->list[n - 1].known)
        n--;
    return n;
}
