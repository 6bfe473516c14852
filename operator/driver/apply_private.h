/* SPDX-License-Identifier: Apache-2.0
 *
 * apply_private: shared by apply.c (sends) and apply_answers.c (handles responses).
 */
#ifndef HVD_OPERATOR_DRIVER_APPLY_PRIVATE_H
#define HVD_OPERATOR_DRIVER_APPLY_PRIVATE_H

#include "operator/api/request.h"
#include "operator/api/slowstart.h"
#include "operator/driver/apply.h"

#define APPLY_TIMEOUT_MS 30000 /* limit of one request with all its retries */

static const struct resource apply_pods = {"", "v1", "pods"};

struct step {
    struct apply *apply;
    enum action_kind kind;
    int worker, attempt;
    enum action_event_kind event;
    char *name; /* name of the pod; owned */
    char uid[POD_UID_MAX];
    struct api_call *call;
};

struct apply {
    struct apply_config config;
    struct entry *e;
    struct job_item *job; /* one reference */
    struct hvdjob_status status;
    struct gang_ops gang; /* a copy: the entry's choice may change meanwhile */
    char gang_api[64];
    struct action_event events[ACTION_EVENTS];

    struct step *steps;
    int n, next;
    struct slowstart run; /* slow start of the current run */
    struct inflight_user turn;
    struct loop_timer later; /* calls ended(), never from within apply_start() */
    enum apply_end end;
    struct err err;
};

/* The end of a step's call; arg is the step. */
void apply_on_answer(void *arg, const struct api_answer *answer);

/* Notes why the apply fails. Only the first call counts. */
void apply_fail(struct apply *a, enum apply_end end, const char *what, const char *why);

/* Sends the next steps, or, once nothing is in flight, ends the apply from a timer. */
void apply_advance(struct apply *a);

#endif
