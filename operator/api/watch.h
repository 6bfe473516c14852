/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: the life of a cache: list (or stream the list), follow, start again. A pure table of
 * states, printed by --explain-states; informer.c does what it says.
 */
#ifndef HVD_OPERATOR_API_WATCH_H
#define HVD_OPERATOR_API_WATCH_H

#include <stddef.h>

enum watch_state {
    WATCH_IDLE,
    WATCH_STREAMING,   /* a watch that begins with all there is */
    WATCH_LISTING,     /* page by page */
    WATCH_FOLLOWING,   /* a watch from the last version on */
    WATCH_WAIT_LIST,   /* a pause, then all of it */
    WATCH_WAIT_FOLLOW, /* a pause, then from the last version on */
    WATCH_STATES
};

enum watch_event {
    WATCH_START,
    WATCH_UNSUPPORTED, /* this server streams no lists */
    WATCH_LISTED,      /* the list is whole, its version known */
    WATCH_ENDED,       /* the server ended the watch, as it does every few minutes */
    WATCH_FAILED,      /* no answer, a refusal, bytes that are no events */
    WATCH_GONE,        /* 410: that version is forgotten */
    WATCH_SILENT,      /* no event and no bookmark for long, as if that version had not come yet */
    WATCH_TIMER,
    WATCH_STOP,
    WATCH_EVENTS
};

enum watch_action {
    WATCH_NOTHING,
    WATCH_DO_STREAM,
    WATCH_DO_LIST,
    WATCH_DO_SYNC,        /* what was not in the list is gone; the stream goes on */
    WATCH_DO_SYNC_FOLLOW, /* the same, and a watch is opened */
    WATCH_DO_FOLLOW,
    WATCH_DO_PAUSE,  /* after a failure: longer each time */
    WATCH_DO_JITTER, /* before a new list: many clients learn of a 410 at the same time */
    WATCH_DO_END,
};

struct watch_row {
    enum watch_state state;
    enum watch_event event;
    enum watch_state next;
    enum watch_action action;
};

/* The row for it, NULL: that event means nothing in that state. */
const struct watch_row *watch_step(enum watch_state state, enum watch_event event);

/* The whole table, for --explain-states and tests. */
const struct watch_row *watch_table(size_t *ret_n);

const char *watch_state_name(enum watch_state state);
const char *watch_event_name(enum watch_event event);
const char *watch_action_name(enum watch_action action);

#endif
