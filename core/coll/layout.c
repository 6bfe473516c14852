/* SPDX-License-Identifier: Apache-2.0
 *
 * layout: see layout.h.
 */
#include "core/coll/layout.h"

size_t layout_piece_bytes(const struct layout *l, size_t k)
{
    size_t count = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t all = l->tensors[i].count;
        count += layout_begin(all, l->pieces, k + 1) - layout_begin(all, l->pieces, k);
    }
    return count * l->elem;
}

bool layout_next(const struct layout *l, struct layout_walk *w, size_t max,
                 struct layout_run *ret_run)
{
    for (; w->tensor < l->n; w->tensor++, w->done = 0) {
        const struct coll_tensor *t = &l->tensors[w->tensor];
        size_t first = layout_begin(t->count, l->pieces, w->piece) + w->done;
        size_t left = layout_begin(t->count, l->pieces, w->piece + 1) - first;
        if (left == 0)
            continue;
        size_t count = left < max ? left : max;
        ret_run->in = (const uint8_t *)t->in + first * l->elem;
        ret_run->out = (uint8_t *)t->out + first * l->elem;
        ret_run->count = count;
        w->done += count;
        return count > 0;
    }
    return false;
}
