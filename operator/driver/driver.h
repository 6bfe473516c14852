/* SPDX-License-Identifier: Apache-2.0
 *
 * driver: from the API server to reconcile() and back: caches of jobs, pods, nodes and what else
 * decides; for each job of which something has changed the pure part is asked, and its actions are
 * applied. On the api's loop, one thread.
 *
 * Its caches are kept up whether it leads or not; it writes between driver_lead() and
 * driver_rest() alone.
 */
#ifndef HVD_OPERATOR_DRIVER_DRIVER_H
#define HVD_OPERATOR_DRIVER_DRIVER_H

#include "core/base/buf.h"
#include "operator/api/api.h"

#define DRIVER_LEADER_LABEL "hvd.dev/leader"

struct driver;

struct driver_config {
    struct api *api;
    const char *namespace; /* jobs of this one alone, and no nodes are seen; NULL: all */
    const char *instance;  /* who we are, in Events */
    /* Asked before each write, whatever was said before. */
    bool (*may_write)(void *arg);
    void *arg;
};

/* Texts are copied. */
int driver_open(struct driver **ret, const struct driver_config *config, struct err *err);

/* From now on, or not any more: requests under way are dropped. */
void driver_lead(struct driver *d);
void driver_rest(struct driver *d);

/* Every cache has been whole once. *ret_why: what is not, and why; valid until the next call. */
bool driver_ready(const struct driver *d, const char **ret_why);

/* For Prometheus. */
void driver_metrics(const struct driver *d, struct buf *dst);

/* NULL is fine. */
void driver_close(struct driver *d);

#endif
