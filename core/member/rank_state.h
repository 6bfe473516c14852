/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_state: the life of one rank as the coordinator sees it: a const table {state, event, next,
 * action}. Pure. roster_life.c applies the actions; `hvdrun --explain-states` prints the table.
 */
#ifndef HVD_MEMBER_RANK_STATE_H
#define HVD_MEMBER_RANK_STATE_H

#include <stdbool.h>
#include <stddef.h>

enum rank_state {
    RANK_EXPECTED, /* its agent has not joined */
    RANK_ASSIGNED, /* its agent was asked to start it */
    RANK_RUNNING,  /* its process runs and has not called hvd_init (it need not) */
    /* elastic: a joiner that called hvd_init while other ranks trained; its program starts up, and
     * it will say when it is ready for admission. */
    RANK_ARRIVED,
    RANK_READY,  /* it sent its card and waits for the roster */
    RANK_ACTIVE, /* it is in the roster of the current epoch */
    /* It called hvd_shutdown, or the world continues without it; it may call hvd_init again. */
    RANK_LEFT,
    RANK_FINISHED, /* exit code 0 */
    RANK_FAILED,   /* another exit code, a signal, or its agent is lost */
    RANK_STATES,
};

enum rank_event {
    RANK_JOIN,       /* the rank's agent has joined */
    RANK_START,      /* the rank's process runs */
    RANK_CARD,       /* hvd_init: its card has arrived */
    RANK_INSTALL,    /* a roster that contains it was published */
    RANK_BYE,        /* hvd_shutdown */
    RANK_EXIT_OK,    /* exit code 0 */
    RANK_EXIT_BAD,   /* any other end of its process */
    RANK_AGENT_LOST, /* the rank's agent is lost, and so is the rank */
    RANK_UNABLE,     /* elastic: it reports that it cannot go on */
    RANK_REMOVE,     /* elastic: the world continues without it */
    /* elastic: other ranks train, so the rank gets provisional numbers and need not wait. */
    RANK_NUMBERS,
    RANK_EVENTS,
};

enum rank_action {
    RANK_DO_NOTHING,
    RANK_DO_CARD, /* store the card; publish a roster if no other card is missing */
    RANK_DO_END,  /* its process has ended: rank_end.h says what that means */
    RANK_DO_TELL, /* other ranks are told to continue without it */
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

/* All rows, for printing. */
const struct rank_row *rank_rows(size_t *ret_n);

const char *rank_state_name(enum rank_state state);
const char *rank_event_name(enum rank_event event);
const char *rank_action_name(enum rank_action action);

static inline bool rank_has_ended(enum rank_state state)
{
    return state == RANK_FINISHED || state == RANK_FAILED;
}

#endif
