/* SPDX-License-Identifier: Apache-2.0
 *
 * running: see running.h. A place or number p is kept at index p & (cap - 1). A batch that is not
 * live any more keeps its room until all older ones are not live either.
 */
#include "core/negotiate/running.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void running_fini(struct running *r)
{
    free(r->tensors);
    free(r->batches);
    *r = (struct running){0};
}

/* A copy of a ring buffer with room for `want` items; the items from `first` to `end` keep their
 * places. */
static void *grown(const void *ring, size_t item, size_t cap, uint64_t first, uint64_t end,
                   size_t want)
{
    uint8_t *bigger = malloc(want * item);
    for (uint64_t p = first; bigger && p < end; p++)
        memcpy(bigger + (p & (want - 1)) * item, (const uint8_t *)ring + (p & (cap - 1)) * item,
               item);
    return bigger;
}

int running_reserve(struct running *r, size_t n)
{
    size_t used = (size_t)(r->tail - r->head);
    if (used + n > r->cap) {
        size_t cap = r->cap ? r->cap : 64;
        while (cap < used + n)
            cap *= 2;
        void *bigger = grown(r->tensors, sizeof(*r->tensors), r->cap, r->head, r->tail, cap);
        if (!bigger)
            return -ENOMEM;
        free(r->tensors);
        r->tensors = bigger;
        r->cap = cap;
    }
    if (r->next - r->first == r->cap_batches) {
        size_t cap = r->cap_batches ? 2 * r->cap_batches : 64;
        void *bigger =
            grown(r->batches, sizeof(*r->batches), r->cap_batches, r->first, r->next, cap);
        if (!bigger)
            return -ENOMEM;
        free(r->batches);
        r->batches = bigger;
        r->cap_batches = cap;
    }
    return 0;
}

static struct running_batch *at(const struct running *r, uint64_t number)
{
    return &r->batches[number & (r->cap_batches - 1)];
}

void running_add(struct running *r, struct tensor *e)
{
    r->tensors[r->tail++ & (r->cap - 1)] = e;
}

uint64_t running_close(struct running *r, struct running_batch batch)
{
    const struct running_batch *last = r->next > r->first ? at(r, r->next - 1) : NULL;
    batch.start = last ? last->start + last->n : r->head;
    batch.n = (uint32_t)(r->tail - batch.start);
    batch.live = true;
    *at(r, r->next) = batch;
    r->n++;
    r->nbound += batch.bound;
    return r->next++;
}

struct running_batch *running_get(const struct running *r, uint64_t number)
{
    if (number < r->first || number >= r->next || !at(r, number)->live)
        return NULL;
    return at(r, number);
}

struct tensor *running_tensor(const struct running *r, const struct running_batch *b, uint32_t i)
{
    return r->tensors[(b->start + i) & (r->cap - 1)];
}

void running_remove(struct running *r, uint64_t number)
{
    struct running_batch *b = running_get(r, number);
    b->live = false;
    r->n--;
    r->nbound -= b->bound;
    for (; r->first < r->next && !at(r, r->first)->live; r->first++)
        r->head += at(r, r->first)->n;
}
