/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination: connects the coordinator plane with the driver. The plane listens for agents while
 * this operator leads. The driver's events of jobs and pods go to the plane, and what the plane
 * knows of a job goes into the job's status. On the api's loop.
 */
#ifndef HVD_OPERATOR_COORDINATION_H
#define HVD_OPERATOR_COORDINATION_H

#include "operator/coordinator/plane.h"
#include "operator/driver/driver.h"

struct coordination;

struct coordination_config {
    struct api *api;
    struct driver *driver;
    const char *namespace; /* namespace of the Secret with the operator's keys */
    const char *address;   /* to listen on, as --agents-addr */
    const char *url;       /* URL that agents dial: "https://NAME:PORT" */
    const char *bundle;    /* the image with the bundle, NULL: users' images have it */
    bool mount;            /* the bundle is an image volume */
    bool by_key;           /* no token reviews: agents authenticate with their job's key */
    void (*failed)(void *arg, const struct err *err); /* listening failed */
    void *arg;
};

/* Borrows the texts of config. Starts to read the keys. */
int coordination_open(struct coordination **ret, const struct coordination_config *config,
                      struct err *err);

/* As soon as the keys have been read: listens for agents and calls driver_lead(). term is higher
 * than that of every earlier leader. */
void coordination_lead(struct coordination *c, int64_t term);
void coordination_stop_leading(struct coordination *c);

/* Why agents cannot be served yet, "": no problem. */
const char *coordination_problem(const struct coordination *c);

/* NULL while this operator does not lead. */
const struct plane *coordination_plane(const struct coordination *c);

void coordination_metrics(const struct coordination *c, struct buf *dst);

/* NULL is fine. */
void coordination_close(struct coordination *c);

#endif
