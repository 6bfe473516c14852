/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: the actions of one job, sent to the API server in their order; it stops at the first that
 * fails. Actions of one kind that stand side by side go at once, creates as slowstart.h says, as
 * far as the turnstile of all jobs has room. What was written is added to the entry's waits. Called
 * by driver.c, on its loop.
 */
#ifndef HVD_OPERATOR_DRIVER_APPLY_H
#define HVD_OPERATOR_DRIVER_APPLY_H

#include "operator/api/api.h"
#include "operator/driver/entries.h"
#include "operator/driver/said.h"
#include "operator/driver/turnstile.h"
#include "operator/reconcile/actions.h"
#include "operator/reconcile/equipment.h"

enum apply_end {
    APPLY_DONE,
    APPLY_STALE,  /* somebody was faster: what was seen is old, look again */
    APPLY_FAILED, /* err says why: again after a pause */
};

struct apply_config {
    struct api *api;
    struct said *said;
    struct turnstile *turnstile;
    struct resource_kinds *kinds;
    /* Borrowed by each request alone; NULL: pods are as their template says. */
    const struct equipment *equipment;
    bool by_key;                  /* agents show the job's key, which is in a Secret by now */
    bool (*may_write)(void *arg); /* asked before each request */
    /* The apply is gone when this is called; not from within apply_start(). */
    void (*ended)(void *arg, struct entry *e, enum apply_end end, const struct err *err);
    void (*wrote)(void *arg); /* one request more went through; may be NULL */
    void *arg;
};

/* Takes what actions have; e->apply is it until ended() or apply_cancel(). */
int apply_start(const struct apply_config *config, struct entry *e, struct actions *actions,
                struct err *err);

/* Requests that are under way are dropped: whether they were done is not known. ended() is not
 * called. NULL is fine. */
void apply_cancel(struct apply *a);

#endif
