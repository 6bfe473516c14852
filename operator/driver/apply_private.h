/* SPDX-License-Identifier: Apache-2.0
 *
 * apply_private: what apply.c, which sends, and apply_answers.c, which hears, share.
 */
#ifndef HVD_OPERATOR_DRIVER_APPLY_PRIVATE_H
#define HVD_OPERATOR_DRIVER_APPLY_PRIVATE_H

#include "operator/api/request.h"
#include "operator/api/slowstart.h"
#include "operator/driver/apply.h"

#define APPLY_TIMEOUT_MS 30000 /* of one request, with all its attempts */

static const struct resource apply_pods = {"", "v1", "pods"};

struct step {
    struct apply *apply;
    enum action_kind kind;
    int worker, attempt;
    bool gated;
    enum action_say say;
    char *name; /* of the pod; owned */
    char uid[POD_UID_MAX];
    struct api_call *call;
};

struct apply {
    struct apply_config config;
    struct entry *e;
    struct job_item *job; /* a reference of ours */
    struct hvdjob_status status;
    struct gang_ops gang; /* a copy: what is served may change meanwhile */
    char gang_api[64];
    struct saying says[ACTION_SAYS];

    struct step *steps;
    int n, next;
    struct slowstart run; /* of the steps of one kind that go now */
    struct turn turn;
    struct loop_timer later; /* ended() is not called from within apply_start() */
    enum apply_end end;
    struct err err;
};

/* A call's end: arg is the step. */
void apply_on_answer(void *arg, const struct api_answer *answer);

/* The run fails for this reason; the first one counts. */
void apply_fail(struct apply *a, enum apply_end end, const char *what, const char *why);

/* Sends what may go now; at the end of all, or after a failure when nothing is out, it ends. */
void apply_advance(struct apply *a);

#endif
