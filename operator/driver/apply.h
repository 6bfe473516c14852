/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: sends the actions of one job to the API server in their order, and stops at the first that
 * fails. Neighbours of one kind are sent concurrently: creates with a slow start (slowstart.h), all
 * within the limit of inflight.h. Each write of the job or a pod becomes an expectation of the
 * job's entry. Called by driver_reconcile.c, on its loop.
 */
#ifndef HVD_OPERATOR_DRIVER_APPLY_H
#define HVD_OPERATOR_DRIVER_APPLY_H

#include "operator/api/api.h"
#include "operator/driver/entries.h"
#include "operator/driver/recorder.h"
#include "operator/driver/inflight.h"
#include "operator/reconcile/actions.h"
#include "operator/reconcile/injection.h"

enum apply_end {
    APPLY_DONE,
    APPLY_STALE,  /* the object has a newer version than cached: reconcile again */
    APPLY_FAILED, /* err says why: try again after a pause */
};

struct apply_config {
    struct api *api;
    struct recorder *recorder;
    struct inflight *inflight;
    /* Read while a pod's body is written; NULL: pods are as their template says. */
    const struct injection *injection;
    const struct drains *drains;  /* nodes that new pods avoid; read at that time, too */
    bool by_key;                  /* agents use the job's key, whose Secret exists */
    bool (*may_write)(void *arg); /* called before each request */
    /* The apply has been freed when this is called. Never called from within apply_start(). */
    void (*ended)(void *arg, struct entry *e, enum apply_end end, const struct err *err);
    void (*wrote)(void *arg); /* a request succeeded; may be NULL */
    /* Called for each pod of a run of deletions, before the first of them is sent. */
    void (*leaves)(void *arg, struct entry *e, const char *name, const char *uid);
    void (*all_leave)(void *arg); /* after the last of these calls */
    void *arg;
};

/* Takes over the status in actions. e->apply points to the apply until ended() or
 * apply_cancel(). */
int apply_start(const struct apply_config *config, struct entry *e, struct actions *actions,
                struct err *err);

/* Drops requests in flight: the server may or may not execute them. ended() is not called. NULL is
 * fine. */
void apply_cancel(struct apply *a);

#endif
