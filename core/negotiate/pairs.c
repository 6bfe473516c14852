/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs: see pairs.h. Open addressing with linear probing.
 */
#include "core/negotiate/pairs.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/hash.h"

void pairs_fini(struct pairs *p)
{
    free(p->slots);
    *p = (struct pairs){.slots = NULL};
}

void pairs_clear(struct pairs *p)
{
    if (p->n)
        for (uint32_t i = 0; i < p->cap; i++)
            p->slots[i].value = PAIRS_NONE;
    p->n = 0;
}

static uint32_t home(const struct pairs *p, uint64_t a, uint64_t b)
{
    return (uint32_t)hash_mix(hash_mix(a + 0x9e3779b97f4a7c15ULL) ^ b) & (p->cap - 1);
}

/* The slot of the pair, or the empty one where it belongs. */
static uint32_t find(const struct pairs *p, uint64_t a, uint64_t b)
{
    uint32_t i = home(p, a, b);
    while (p->slots[i].value != PAIRS_NONE && (p->slots[i].a != a || p->slots[i].b != b))
        i = (i + 1) & (p->cap - 1);
    return i;
}

uint32_t pairs_get(const struct pairs *p, uint64_t a, uint64_t b)
{
    return p->cap ? p->slots[find(p, a, b)].value : PAIRS_NONE;
}

static int grow(struct pairs *p)
{
    struct pairs more = {.n = p->n, .cap = p->cap ? 2 * p->cap : 16};
    more.slots = calloc(more.cap, sizeof(*more.slots));
    if (!more.slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < more.cap; i++)
        more.slots[i].value = PAIRS_NONE;
    for (uint32_t i = 0; i < p->cap; i++) {
        const struct pairs_slot *s = &p->slots[i];
        if (s->value != PAIRS_NONE)
            more.slots[find(&more, s->a, s->b)] = *s;
    }
    free(p->slots);
    *p = more;
    return 0;
}

int pairs_put(struct pairs *p, uint64_t a, uint64_t b, uint32_t value)
{
    if (2 * (p->n + 1) > p->cap && grow(p) < 0)
        return -ENOMEM;
    struct pairs_slot *s = &p->slots[find(p, a, b)];
    p->n += s->value == PAIRS_NONE;
    *s = (struct pairs_slot){.a = a, .b = b, .value = value};
    return 0;
}

/* Moves later slots of the same run back, so that no search ends at the gap. */
void pairs_remove(struct pairs *p, uint64_t a, uint64_t b)
{
    if (pairs_get(p, a, b) == PAIRS_NONE)
        return;
    uint32_t mask = p->cap - 1, gap = find(p, a, b);
    for (uint32_t i = (gap + 1) & mask; p->slots[i].value != PAIRS_NONE; i = (i + 1) & mask) {
        uint32_t at = home(p, p->slots[i].a, p->slots[i].b);
        if (((i - at) & mask) < ((i - gap) & mask))
            continue; /* its search begins behind the gap */
        p->slots[gap] = p->slots[i];
        gap = i;
    }
    p->slots[gap].value = PAIRS_NONE;
    p->n--;
}
