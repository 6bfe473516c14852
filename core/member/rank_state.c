/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_state: see rank_state.h.
 */
#include "core/member/rank_state.h"

static const struct rank_row rows[] = {
    {RANK_EXPECTED, RANK_JOIN, RANK_ASSIGNED, RANK_DO_NOTHING},
    {RANK_EXPECTED, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    /* The agent repeats its join because the response was lost. */
    {RANK_ASSIGNED, RANK_JOIN, RANK_ASSIGNED, RANK_DO_NOTHING},
    {RANK_ASSIGNED, RANK_START, RANK_RUNNING, RANK_DO_NOTHING},
    {RANK_ASSIGNED, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END}, /* could not be started */
    {RANK_ASSIGNED, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_RUNNING, RANK_CARD, RANK_READY, RANK_DO_CARD},
    {RANK_RUNNING, RANK_BYE, RANK_RUNNING, RANK_DO_NOTHING},
    {RANK_RUNNING, RANK_UNABLE, RANK_RUNNING, RANK_DO_NOTHING},
    {RANK_RUNNING, RANK_EXIT_OK, RANK_FINISHED, RANK_DO_END},
    {RANK_RUNNING, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END},
    {RANK_RUNNING, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_ARRIVED, RANK_CARD, RANK_READY, RANK_DO_CARD},
    {RANK_ARRIVED, RANK_BYE, RANK_RUNNING, RANK_DO_NOTHING},
    {RANK_ARRIVED, RANK_UNABLE, RANK_LEFT, RANK_DO_TELL},
    {RANK_ARRIVED, RANK_EXIT_OK, RANK_FINISHED, RANK_DO_END},
    {RANK_ARRIVED, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END},
    {RANK_ARRIVED, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_READY, RANK_CARD, RANK_READY,
     RANK_DO_CARD}, /* stopped waiting for a roster, tries again */
    {RANK_READY, RANK_NUMBERS, RANK_ARRIVED, RANK_DO_NOTHING},
    {RANK_READY, RANK_INSTALL, RANK_ACTIVE, RANK_DO_NOTHING},
    {RANK_READY, RANK_BYE, RANK_RUNNING, RANK_DO_NOTHING},
    {RANK_READY, RANK_UNABLE, RANK_LEFT, RANK_DO_TELL},
    {RANK_READY, RANK_REMOVE, RANK_LEFT, RANK_DO_NOTHING},
    {RANK_READY, RANK_EXIT_OK, RANK_FINISHED, RANK_DO_END},
    {RANK_READY, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END},
    {RANK_READY, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_ACTIVE, RANK_CARD, RANK_READY, RANK_DO_CARD}, /* a loss, a boundary, or hvd_init again */
    {RANK_ACTIVE, RANK_BYE, RANK_LEFT, RANK_DO_NOTHING},
    {RANK_ACTIVE, RANK_UNABLE, RANK_LEFT, RANK_DO_TELL},
    {RANK_ACTIVE, RANK_EXIT_OK, RANK_FINISHED, RANK_DO_END},
    {RANK_ACTIVE, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END},
    {RANK_ACTIVE, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_LEFT, RANK_CARD, RANK_READY, RANK_DO_CARD},
    {RANK_LEFT, RANK_BYE, RANK_LEFT, RANK_DO_NOTHING},
    {RANK_LEFT, RANK_UNABLE, RANK_LEFT, RANK_DO_NOTHING},
    {RANK_LEFT, RANK_EXIT_OK, RANK_FINISHED, RANK_DO_END},
    {RANK_LEFT, RANK_EXIT_BAD, RANK_FAILED, RANK_DO_END},
    {RANK_LEFT, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_END},

    {RANK_FINISHED, RANK_AGENT_LOST, RANK_FINISHED, RANK_DO_NOTHING},
    {RANK_FAILED, RANK_AGENT_LOST, RANK_FAILED, RANK_DO_NOTHING},
};

static const char *const state_names[RANK_STATES] = {
    [RANK_EXPECTED] = "expected", [RANK_ASSIGNED] = "assigned", [RANK_RUNNING] = "running",
    [RANK_ARRIVED] = "arrived",   [RANK_READY] = "ready",       [RANK_ACTIVE] = "active",
    [RANK_LEFT] = "left",         [RANK_FINISHED] = "finished", [RANK_FAILED] = "failed",
};

static const char *const event_names[RANK_EVENTS] = {
    [RANK_JOIN] = "join",        [RANK_START] = "start",
    [RANK_CARD] = "card",        [RANK_INSTALL] = "install",
    [RANK_BYE] = "bye",          [RANK_EXIT_OK] = "exit 0",
    [RANK_EXIT_BAD] = "failure", [RANK_AGENT_LOST] = "agent lost",
    [RANK_UNABLE] = "unable",    [RANK_REMOVE] = "remove",
    [RANK_NUMBERS] = "numbers",
};

static const char *const action_names[RANK_ACTIONS] = {
    [RANK_DO_NOTHING] = "-",
    [RANK_DO_CARD] = "keep card",
    [RANK_DO_END] = "end",
    [RANK_DO_TELL] = "tell: unable",
};

const struct rank_row *rank_step(enum rank_state state, enum rank_event event)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].state == state && rows[i].event == event)
            return &rows[i];
    return NULL;
}

const struct rank_row *rank_rows(size_t *ret_n)
{
    *ret_n = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

const char *rank_state_name(enum rank_state state)
{
    return state_names[state];
}

const char *rank_event_name(enum rank_event event)
{
    return event_names[event];
}

const char *rank_action_name(enum rank_action action)
{
    return action_names[action];
}
