/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_cut: see shm_cut.h.
 */
#include "core/coll/shm_cut.h"

#include <stdint.h>

#define LINE 64

void shm_cut_shape(struct shm_cut *cut, const struct layout *layout, size_t first, size_t stride,
                   int owners)
{
    *cut = (struct shm_cut){.layout = layout, .owners = owners, .first = first, .stride = stride};
}

void shm_cut_flat(struct shm_cut *cut, const struct layout *layout, int owners)
{
    size_t total = 0, line = LINE / layout->elem;
    for (size_t t = 0; t < layout->n; t++)
        total += layout->tensors[t].count;
    size_t part = (total + (size_t)owners - 1) / (size_t)owners;
    *cut = (struct shm_cut){.layout = layout,
                            .owners = owners,
                            .flat = true,
                            .total = total,
                            .part = (part + line - 1) / line * line};
}

void shm_cut_parts(struct shm_cut *cut, const struct layout *layout, int owners,
                   const size_t *begins)
{
    *cut = (struct shm_cut){.layout = layout,
                            .owners = owners,
                            .flat = true,
                            .total = begins[owners],
                            .begins = begins};
    for (int o = 0; o < owners; o++)
        if (begins[o + 1] - begins[o] > cut->part)
            cut->part = begins[o + 1] - begins[o];
}

size_t shm_cut_longest(const struct shm_cut *cut)
{
    if (cut->flat)
        return cut->part < cut->total ? cut->part : cut->total;
    /* In every tensor the longer pieces come first. */
    return layout_piece_bytes(cut->layout, cut->first) / cut->layout->elem;
}

void shm_cut_walks(const struct shm_cut *cut, struct shm_walk *ret_walks)
{
    size_t tensor = 0, before = 0; /* before: elements of the tensors before `tensor` */
    for (int o = 0; o < cut->owners; o++) {
        struct shm_walk *walk = &ret_walks[o];
        if (!cut->flat) {
            walk->at = layout_walk(cut->first + (size_t)o * cut->stride);
            continue;
        }
        size_t begin = cut->begins ? cut->begins[o] : (size_t)o * cut->part;
        if (begin > cut->total)
            begin = cut->total;
        size_t end = cut->begins ? cut->begins[o + 1] : begin + cut->part;
        while (tensor < cut->layout->n && before + cut->layout->tensors[tensor].count <= begin)
            before += cut->layout->tensors[tensor++].count;
        walk->at = (struct layout_walk){.tensor = tensor, .done = begin - before};
        walk->left = (end < cut->total ? end : cut->total) - begin;
    }
}

static bool flat_next(const struct shm_cut *cut, struct shm_walk *walk, size_t max,
                      struct layout_run *ret_run)
{
    const struct layout *l = cut->layout;
    struct layout_walk *at = &walk->at;
    if (max > walk->left)
        max = walk->left;
    while (max > 0 && at->tensor < l->n) {
        const struct coll_tensor *t = &l->tensors[at->tensor];
        size_t count = t->count - at->done;
        if (count == 0) {
            *at = (struct layout_walk){.tensor = at->tensor + 1};
            continue;
        }
        if (count > max)
            count = max;
        ret_run->in = (const uint8_t *)t->in + at->done * l->elem;
        ret_run->out = (uint8_t *)t->out + at->done * l->elem;
        ret_run->count = count;
        at->done += count;
        walk->left -= count;
        return true;
    }
    return false;
}

bool shm_cut_next(const struct shm_cut *cut, struct shm_walk *walk, size_t max,
                  struct layout_run *ret_run)
{
    if (cut->flat)
        return flat_next(cut, walk, max, ret_run);
    return max > 0 && layout_next(cut->layout, &walk->at, max, ret_run);
}
