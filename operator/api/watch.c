/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: see watch.h.
 */
#include "operator/api/watch.h"

static const struct watch_row table[] = {
    {WATCH_IDLE, WATCH_START, WATCH_STREAMING, WATCH_DO_STREAM},

    {WATCH_STREAMING, WATCH_UNSUPPORTED, WATCH_LISTING, WATCH_DO_LIST},
    {WATCH_STREAMING, WATCH_LISTED, WATCH_FOLLOWING, WATCH_DO_SYNC},
    {WATCH_STREAMING, WATCH_ENDED, WATCH_WAIT_LIST, WATCH_DO_PAUSE},
    {WATCH_STREAMING, WATCH_FAILED, WATCH_WAIT_LIST, WATCH_DO_PAUSE},
    {WATCH_STREAMING, WATCH_GONE, WATCH_WAIT_LIST, WATCH_DO_JITTER},
    {WATCH_STREAMING, WATCH_STOP, WATCH_IDLE, WATCH_DO_END},

    {WATCH_LISTING, WATCH_LISTED, WATCH_FOLLOWING, WATCH_DO_SYNC_FOLLOW},
    {WATCH_LISTING, WATCH_FAILED, WATCH_WAIT_LIST, WATCH_DO_PAUSE},
    {WATCH_LISTING, WATCH_GONE, WATCH_WAIT_LIST, WATCH_DO_JITTER},
    {WATCH_LISTING, WATCH_STOP, WATCH_IDLE, WATCH_DO_END},

    {WATCH_FOLLOWING, WATCH_ENDED, WATCH_FOLLOWING, WATCH_DO_FOLLOW},
    {WATCH_FOLLOWING, WATCH_FAILED, WATCH_WAIT_FOLLOW, WATCH_DO_PAUSE},
    {WATCH_FOLLOWING, WATCH_GONE, WATCH_WAIT_LIST, WATCH_DO_JITTER},
    {WATCH_FOLLOWING, WATCH_SILENT, WATCH_WAIT_LIST, WATCH_DO_PAUSE},
    {WATCH_FOLLOWING, WATCH_STOP, WATCH_IDLE, WATCH_DO_END},

    {WATCH_WAIT_LIST, WATCH_TIMER, WATCH_STREAMING, WATCH_DO_STREAM},
    {WATCH_WAIT_LIST, WATCH_STOP, WATCH_IDLE, WATCH_DO_END},

    {WATCH_WAIT_FOLLOW, WATCH_TIMER, WATCH_FOLLOWING, WATCH_DO_FOLLOW},
    {WATCH_WAIT_FOLLOW, WATCH_STOP, WATCH_IDLE, WATCH_DO_END},
};

const struct watch_row *watch_step(enum watch_state state, enum watch_event event)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (table[i].state == state && table[i].event == event)
            return &table[i];
    return NULL;
}

const struct watch_row *watch_table(size_t *ret_n)
{
    *ret_n = sizeof(table) / sizeof(*table);
    return table;
}

const char *watch_state_name(enum watch_state state)
{
    static const char *const names[] = {"idle",      "streaming",       "listing",
                                        "following", "waiting to list", "waiting to follow"};
    return names[state];
}

const char *watch_event_name(enum watch_event event)
{
    static const char *const names[] = {"start", "unsupported", "listed", "ended", "failed",
                                        "gone",  "silent",      "timer",  "stop"};
    return names[event];
}

const char *watch_action_name(enum watch_action action)
{
    static const char *const names[] = {
        "nothing",           "stream", "list", "sync", "sync and follow", "follow", "pause",
        "pause with jitter", "end"};
    return names[action];
}
