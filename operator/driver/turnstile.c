/* SPDX-License-Identifier: Apache-2.0
 *
 * turnstile: see turnstile.h.
 */
#include "operator/driver/turnstile.h"

void turnstile_init(struct turnstile *t, int room)
{
    *t = (struct turnstile){.room = room};
    list_init(&t->line);
}

void turnstile_begin(struct turnstile *t, struct turn *turn, void (*call)(void *arg), void *arg)
{
    *turn = (struct turn){.call = call, .arg = arg, .number = t->turns++};
    list_init(&turn->node);
}

static void stand_in_line(struct turnstile *t, struct turn *turn)
{
    struct list *after = t->line.prev;
    while (after != &t->line && list_entry(after, struct turn, node)->number > turn->number)
        after = after->prev;
    list_append(after->next, &turn->node); /* before what follows */
}

bool turnstile_pass(struct turnstile *t, struct turn *turn)
{
    bool first =
        list_empty(&t->line) || list_first(&t->line, struct turn, node)->number >= turn->number;
    if (t->room > 0 && first) {
        t->room--;
        return true;
    }
    if (list_empty(&turn->node))
        stand_in_line(t, turn);
    return false;
}

/* Each of the line leaves no room, or the line: so this ends. */
void turnstile_leave(struct turnstile *t)
{
    t->room++;
    if (t->calling)
        return;
    t->calling = true;
    while (t->room > 0 && !list_empty(&t->line)) {
        struct turn *turn = list_first(&t->line, struct turn, node);
        turn->call(turn->arg);
    }
    t->calling = false;
}

void turn_step_aside(struct turn *turn)
{
    list_remove(&turn->node);
}
