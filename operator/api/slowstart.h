/* SPDX-License-Identifier: Apache-2.0
 *
 * slowstart: how many creates of a gang are under way at a time: 1 first, and one more with each
 * that succeeds, so that as many go out in a round trip as 1, 2, 4 ... A quota or a webhook that
 * refuses the first pod then costs one request, not a thousand. Pure.
 */
#ifndef HVD_OPERATOR_API_SLOWSTART_H
#define HVD_OPERATOR_API_SLOWSTART_H

#include <stdbool.h>

struct slowstart {
    unsigned todo;   /* not sent yet */
    unsigned out;    /* sent, not answered */
    unsigned window; /* that may be out */
    unsigned max;    /* what the window grows to */
    bool failed;     /* nothing more goes out */
};

/* total requests, at first window (>= 1) and in the end at most max of them under way. */
static inline void slowstart_init(struct slowstart *s, unsigned total, unsigned window,
                                  unsigned max)
{
    *s = (struct slowstart){.todo = total, .window = window, .max = max};
}

/* May one more be sent now? */
static inline bool slowstart_may(const struct slowstart *s)
{
    return !s->failed && s->todo > 0 && s->out < s->window;
}

/* One is sent; one was answered. */
static inline void slowstart_sent(struct slowstart *s)
{
    s->todo--;
    s->out++;
}

static inline void slowstart_done(struct slowstart *s, bool ok)
{
    s->out--;
    s->window += ok && s->window < s->max;
    s->failed |= !ok;
}

/* Nothing is out and nothing more goes out. */
static inline bool slowstart_over(const struct slowstart *s)
{
    return s->out == 0 && (s->failed || s->todo == 0);
}

#endif
