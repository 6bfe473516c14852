/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_state: the life of one rank as the coordinator sees it: a const table {state, event, next,
 * action}. Pure. roster.c applies the actions; `hvdrun --explain-states` prints the table.
 */
#ifndef HVD_MEMBER_RANK_STATE_H
#define HVD_MEMBER_RANK_STATE_H

#include <stdbool.h>
#include <stddef.h>

enum rank_state {
    RANK_EXPECTED, /* its agent has not joined */
    RANK_ASSIGNED, /* its agent was told to start it */
    RANK_RUNNING,  /* its process runs; it has not called hvd_init (and need not) */
    RANK_ARRIVED,  /* it called hvd_init while others trained: it starts up, and will say when it
                      is ready to come in (elastic) */
    RANK_READY,    /* it gave its card and waits for the roster */
    RANK_ACTIVE,   /* it is in the roster of the current epoch */
    RANK_LEFT,     /* it called hvd_shutdown, or the world goes on without it; it may call hvd_init
                      again */
    RANK_ENDED,    /* exit code 0 */
    RANK_FAILED,   /* another exit code, a signal, or its agent is gone */
    RANK_STATES,
};

enum rank_event {
    RANK_JOIN,       /* its agent joined */
    RANK_START,      /* its process runs */
    RANK_CARD,       /* hvd_init: its card came */
    RANK_INSTALL,    /* a roster with it was published */
    RANK_BYE,        /* hvd_shutdown */
    RANK_EXIT_OK,    /* exit code 0 */
    RANK_EXIT_BAD,   /* any other end */
    RANK_AGENT_LOST, /* its agent is gone, and it with it */
    RANK_OUT,        /* it says that it cannot go on (elastic) */
    RANK_SEND_OFF,   /* the world goes on without it (elastic) */
    RANK_PLACE,      /* others train: it is told its place, and need not wait for them (elastic) */
    RANK_EVENTS,
};

enum rank_action {
    RANK_DO_NOTHING,
    RANK_DO_CARD,  /* keep the card; publish a roster when it was the last one */
    RANK_DO_END,   /* it ended as it should */
    RANK_DO_EARLY, /* it ended while others count on it: they are told, it is no failure by itself
                    */
    RANK_DO_FAIL,  /* it failed: others are told; fixed: the first one decides the job's exit code,
                      elastic: another member comes in its place */
    RANK_DO_OUT,   /* others are told to do without it */
    RANK_ACTIONS,
};

struct rank_row {
    enum rank_state state;
    enum rank_event event;
    enum rank_state next;
    enum rank_action action;
};

/* The row for an event, NULL where the event is refused in that state. */
const struct rank_row *rank_step(enum rank_state state, enum rank_event event);

/* All rows, for those who print them. */
const struct rank_row *rank_rows(size_t *ret_n);

const char *rank_state_name(enum rank_state state);
const char *rank_event_name(enum rank_event event);
const char *rank_action_name(enum rank_action action);

static inline bool rank_is_over(enum rank_state state)
{
    return state == RANK_ENDED || state == RANK_FAILED;
}

#endif
