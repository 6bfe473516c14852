/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: the state machine of an informer as a const table: list (or streamed list), watch, list
 * again. Pure; printed by --explain-states, executed by informer.c.
 */
#ifndef HVD_OPERATOR_API_WATCH_H
#define HVD_OPERATOR_API_WATCH_H

#include <stddef.h>

enum watch_state {
    WATCH_IDLE,
    WATCH_STREAMING,   /* a watch that begins with all objects (sendInitialEvents) */
    WATCH_LISTING,     /* a list, page by page */
    WATCH_FOLLOWING,   /* a watch from the last version */
    WATCH_WAIT_LIST,   /* a pause before a list */
    WATCH_WAIT_FOLLOW, /* a pause before a watch from the last version */
    WATCH_STATES
};

enum watch_event {
    WATCH_START,
    WATCH_UNSUPPORTED, /* the server does not support streamed lists */
    WATCH_LISTED,      /* the list is complete, its version known */
    WATCH_ENDED,       /* the server ended the watch, as it does every few minutes */
    WATCH_FAILED,      /* no response, an error status, or bytes that are not events */
    WATCH_GONE,        /* 410: the server no longer has the version at which the request starts */
    WATCH_SILENT,      /* no event or bookmark for long: the server may be at an older version */
    WATCH_TIMER,
    WATCH_STOP,
    WATCH_EVENTS
};

enum watch_action {
    WATCH_NOTHING,
    WATCH_DO_STREAM,
    WATCH_DO_LIST,
    WATCH_DO_SYNC,        /* delete objects that were not in the list; the stream continues */
    WATCH_DO_SYNC_FOLLOW, /* delete objects that were not in the list, and open a watch */
    WATCH_DO_FOLLOW,
    WATCH_DO_PAUSE,  /* backoff after a failure */
    WATCH_DO_JITTER, /* random pause before a list: many clients get 410 at the same time */
    WATCH_DO_END,
};

struct watch_row {
    enum watch_state state;
    enum watch_event event;
    enum watch_state next;
    enum watch_action action;
};

/* The row for the state and event; NULL: the event is ignored in that state. */
const struct watch_row *watch_step(enum watch_state state, enum watch_event event);

/* The whole table, for --explain-states and tests. */
const struct watch_row *watch_table(size_t *ret_n);

const char *watch_state_name(enum watch_state state);
const char *watch_event_name(enum watch_event event);
const char *watch_action_name(enum watch_action action);

#endif
