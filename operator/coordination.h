/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination: the coordinator plane within the operator: it listens while this operator leads,
 * is told by the driver which jobs and pods there are, and its rosters' epochs go into the jobs'
 * status. On the api's loop.
 */
#ifndef HVD_OPERATOR_COORDINATION_H
#define HVD_OPERATOR_COORDINATION_H

#include "operator/coordinator/plane.h"
#include "operator/driver/driver.h"

struct coordination;

struct coordination_config {
    struct api *api;
    struct driver *driver;
    const char *namespace; /* of the Secret with its keys */
    const char *address;   /* where it listens: as --agents-addr has it */
    const char *url;       /* by which agents dial it: "https://NAME:PORT" */
    const char *bundle;    /* the image with the bundle, NULL: users' images have it */
    bool mount;            /* as an image volume */
    bool by_key;           /* tokens cannot be reviewed: agents show their job's key */
    void (*failed)(void *arg, const struct err *err); /* it cannot listen */
    void *arg;
};

/* Texts are borrowed. Begins to look for its keys. */
int coordination_open(struct coordination **ret, const struct coordination_config *config,
                      struct err *err);

/* Listens, and lets the driver lead, as soon as there are keys; term is higher than ever before. */
void coordination_lead(struct coordination *c, int64_t term);
void coordination_stop_leading(struct coordination *c);

/* Why agents cannot be served, "": they can be. */
const char *coordination_problem(const struct coordination *c);

/* NULL: it does not lead. */
const struct plane *coordination_plane(const struct coordination *c);

void coordination_metrics(const struct coordination *c, struct buf *dst);

/* NULL is fine. */
void coordination_close(struct coordination *c);

#endif
