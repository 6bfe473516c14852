/* SPDX-License-Identifier: Apache-2.0
 *
 * health: says what the operator lacks at the API server, and for how long. Pure: takes the
 * problems of all sources and the time, and returns lines for the log and for /readyz. operator.c
 * steps it each second.
 */
#ifndef HVD_OPERATOR_API_HEALTH_H
#define HVD_OPERATOR_API_HEALTH_H

#include "core/base/buf.h"
#include "operator/api/problem.h"

#define HEALTH_SOURCES 16
/* A shorter problem is not reported: a restart of the API server, during which requests fail, and
 * after which some are refused for a moment. Informers pause for 10 s at most, so the second is
 * reported after it has happened twice. */
#define HEALTH_GRACE_S   5   /* no response, or 401 */
#define HEALTH_REFUSED_S 12  /* another error */
#define HEALTH_REPEAT_S  300 /* a problem that lasts is reported again so often */

enum health_need {
    HEALTH_ALWAYS,   /* the operator does not work without it */
    HEALTH_PARTLY,   /* some jobs need it */
    HEALTH_OPTIONAL, /* the operator works without it if it is refused (403) */
};

/* Something that the operator reads or writes again and again. */
struct health_source {
    const char *what; /* "hvdjobs" */
    enum health_need need;
    bool there;                    /* it has succeeded once, or needs not */
    const struct problem *problem; /* of the last request */
};

struct health_state {
    long status;    /* of the problem */
    uint64_t since; /* clock_ns(); 0: no problem */
    uint64_t said;  /* when it was last reported; 0: never */
    bool over;      /* it was reported, and is over; the end is not reported yet */
    /* A problem of another status before this one, which was reported, and whose end was not; told
     * 0: there is none. */
    long told_status;
    uint64_t told_since, told;
};

struct health {
    const char *server;     /* borrowed */
    uint64_t unready_after; /* ns; a problem that lasts longer makes the operator unready */
    struct health_state states[HEALTH_SOURCES];
};

typedef void health_say_f(void *arg, const char *line);

/* Calls say with each line for the log. The order of sources is the same in all calls; n may grow.
 * now: clock_ns(). */
void health_step(struct health *h, const struct health_source *sources, int n, uint64_t now,
                 health_say_f *say, void *arg);

/* False if a source is not there, or if one that is always needed has failed for longer than
 * unready_after. Then appends a line for each source that fails or is not there. */
bool health_ready(const struct health *h, const struct health_source *sources, int n, uint64_t now,
                  struct buf *ret);

/* Does the operator work without this source? It is optional, and was refused. */
bool health_goes_without(const struct health_source *source);

#endif
