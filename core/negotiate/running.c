/* SPDX-License-Identifier: Apache-2.0
 *
 * running: see running.h.
 */
#include "core/negotiate/running.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void running_fini(struct running *r)
{
    free(r->tensors);
    free(r->sizes);
    *r = (struct running){0};
}

/* A larger copy of a ring buffer of `len` items that begins at `head`; the copy begins at 0. */
static void *grown(const void *ring, size_t item, size_t cap, size_t head, size_t len, size_t want)
{
    uint8_t *bigger = malloc(want * item);
    if (!bigger)
        return NULL;
    size_t first = len < cap - head ? len : cap - head;
    if (len) {
        memcpy(bigger, (const uint8_t *)ring + head * item, first * item);
        memcpy(bigger + first * item, ring, (len - first) * item);
    }
    return bigger;
}

int running_reserve(struct running *r, size_t n)
{
    if (r->len + n > r->cap) {
        size_t cap = r->cap ? r->cap : 64;
        while (cap < r->len + n)
            cap *= 2;
        void *bigger = grown(r->tensors, sizeof(*r->tensors), r->cap, r->head, r->len, cap);
        if (!bigger)
            return -ENOMEM;
        free(r->tensors);
        r->tensors = bigger;
        r->cap = cap;
        r->head = 0;
    }
    if (r->n == r->cap_sizes) {
        size_t cap = r->cap_sizes ? 2 * r->cap_sizes : 64;
        void *bigger = grown(r->sizes, sizeof(*r->sizes), r->cap_sizes, r->first, r->n, cap);
        if (!bigger)
            return -ENOMEM;
        free(r->sizes);
        r->sizes = bigger;
        r->cap_sizes = cap;
        r->first = 0;
    }
    return 0;
}

void running_add(struct running *r, struct tensor *e)
{
    r->tensors[(r->head + r->len++) & (r->cap - 1)] = e;
}

void running_close(struct running *r, uint32_t n)
{
    r->sizes[(r->first + r->n++) & (r->cap_sizes - 1)] = n;
}

uint32_t running_oldest(const struct running *r)
{
    return r->sizes[r->first];
}

uint32_t running_newest(const struct running *r)
{
    return r->sizes[(r->first + r->n - 1) & (r->cap_sizes - 1)];
}

struct tensor *running_in_oldest(const struct running *r, uint32_t i)
{
    return r->tensors[(r->head + i) & (r->cap - 1)];
}

struct tensor *running_in_newest(const struct running *r, uint32_t i)
{
    return r->tensors[(r->head + r->len - running_newest(r) + i) & (r->cap - 1)];
}

void running_drop_oldest(struct running *r)
{
    uint32_t n = running_oldest(r);
    r->head = (r->head + n) & (r->cap - 1);
    r->len -= n;
    r->first = (r->first + 1) & (r->cap_sizes - 1);
    r->n--;
}

void running_drop_newest(struct running *r)
{
    r->len -= running_newest(r);
    r->n--;
}
