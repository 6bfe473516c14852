/* SPDX-License-Identifier: Apache-2.0
 *
 * whole: see whole.h.
 */
#include "core/engine/whole.h"

#include <stdlib.h>

#include "core/engine/engine.h"

int whole_begin(struct circle *c, uint64_t done, struct err *err)
{
    struct whole *w = &c->batches.gpu.whole;
    int n = c->control.nchildren;
    uint64_t *of_child = calloc((size_t)n + 1, sizeof(*of_child));
    if (!of_child)
        return err_set(err, ENOMEM, "no memory for the counts of %d ranks", n);
    for (int i = 0; i < n; i++)
        of_child[i] = done;
    free(w->of_child);
    *w = (struct whole){.own = done, .done = done, .told = done, .of_child = of_child};
    return 0;
}

void whole_fini(struct whole *w)
{
    free(w->of_child);
    *w = (struct whole){.own = 0};
}

static void send_down(struct circle *c)
{
    for (int i = 0; i < c->control.nchildren; i++)
        control_send_whole(c, i, c->batches.gpu.whole.done);
}

/* The smallest count of this rank and of all below it may have risen. */
static void look(struct circle *c)
{
    struct whole *w = &c->batches.gpu.whole;
    const struct control *t = &c->control;
    uint64_t least = w->own;
    for (int i = 0; i < t->nchildren; i++)
        least = w->of_child[i] < least ? w->of_child[i] : least;
    if (least == w->told)
        return;
    w->told = least;
    if (t->parent >= 0) {
        control_send_whole(c, t->nchildren, least);
    } else {
        w->done = least;
        send_down(c);
    }
}

void whole_add(struct circle *c)
{
    struct engine *e = c->engine;
    struct whole *w = &c->batches.gpu.whole;
    w->own++;
    if (e->boot.elastic)
        look(c);
    else
        w->done = w->own;
}

int whole_take(struct circle *c, int from, uint64_t count)
{
    struct whole *w = &c->batches.gpu.whole;
    if (from == c->control.nchildren) {
        if (count < w->done || count > w->told)
            return -EPROTO;
        w->done = count;
        send_down(c);
        return 0;
    }
    if (count < w->of_child[from])
        return -EPROTO;
    w->of_child[from] = count;
    look(c);
    return 0;
}
