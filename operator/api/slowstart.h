/* SPDX-License-Identifier: Apache-2.0
 *
 * slowstart: limits the creates of a gang in flight: 1 at first, and one more after each success,
 * so the window doubles per round trip (1, 2, 4 ...). If a quota or a webhook refuses the first
 * pod, that costs one request and not a thousand. Pure.
 */
#ifndef HVD_OPERATOR_API_SLOWSTART_H
#define HVD_OPERATOR_API_SLOWSTART_H

#include <stdbool.h>

struct slowstart {
    unsigned todo;   /* requests not sent yet */
    unsigned out;    /* requests in flight */
    unsigned window; /* limit of out */
    unsigned max;    /* limit of window */
    bool failed;     /* a request failed: no further ones are sent */
};

/* total requests; the window starts at window (>= 1) and grows to max. */
static inline void slowstart_init(struct slowstart *s, unsigned total, unsigned window,
                                  unsigned max)
{
    *s = (struct slowstart){.todo = total, .window = window, .max = max};
}

/* May another request be sent now? */
static inline bool slowstart_may(const struct slowstart *s)
{
    return !s->failed && s->todo > 0 && s->out < s->window;
}

/* Count a request that was sent, and one that was answered. */
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

/* Nothing is in flight, and nothing more will be sent. */
static inline bool slowstart_over(const struct slowstart *s)
{
    return s->out == 0 && (s->failed || s->todo == 0);
}

#endif
