/* SPDX-License-Identifier: Apache-2.0
 *
 * slowstart: how many creates of a gang go out at a time: 1, 2, 4 ..., each wave after the one
 * before has succeeded. A quota or a webhook that refuses the first pod then costs one request, not
 * a thousand. Pure.
 */
#ifndef HVD_OPERATOR_API_SLOWSTART_H
#define HVD_OPERATOR_API_SLOWSTART_H

#include <stdbool.h>

struct slowstart {
    unsigned todo;   /* not sent yet */
    unsigned out;    /* sent, not answered */
    unsigned window; /* of the wave after this one */
    unsigned max;
    bool failed; /* nothing more goes out */
};

/* total creates, at most max (>= 1) under way at once. */
static inline void slowstart_init(struct slowstart *s, unsigned total, unsigned max)
{
    *s = (struct slowstart){.todo = total, .window = 1, .max = max};
}

/* How many to send now; counts them as sent. 0 while a wave is out, after a failure, at the end. */
static inline unsigned slowstart_take(struct slowstart *s)
{
    if (s->out > 0 || s->failed || s->todo == 0)
        return 0;
    unsigned n = s->window < s->todo ? s->window : s->todo;
    s->todo -= n;
    s->out = n;
    s->window = s->window > s->max / 2 ? s->max : s->window * 2;
    return n;
}

static inline void slowstart_done(struct slowstart *s, bool ok)
{
    s->out--;
    s->failed |= !ok;
}

/* Nothing is out and nothing more goes out. */
static inline bool slowstart_over(const struct slowstart *s)
{
    return s->out == 0 && (s->failed || s->todo == 0);
}

#endif
