/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination: connects hvd-plane with the driver. hvd-plane connects to a Unix socket of this
 * process. While this operator leads, it gets a certificate and all jobs and pods, and serves the
 * agents; what it reports of a job goes into the job's status. On the api's loop.
 */
#ifndef HVD_OPERATOR_COORDINATION_H
#define HVD_OPERATOR_COORDINATION_H

#include <sys/types.h>

#include "operator/driver/driver.h"
#include "operator/link/plane_mirror.h"

struct coordination;

struct coordination_config {
    struct api *api;
    struct driver *driver;
    const char *namespace; /* namespace of the Secret with the operator's keys */
    const char *socket;    /* path on which to wait for hvd-plane */
    int plane_s;           /* seconds: a plane that does not serve for longer is missing */
    uid_t plane_uid;       /* the user that hvd-plane runs as */
    const char *url;       /* URL that agents dial: "https://NAME:PORT" */
    const char *bundle;    /* the image with the bundle, NULL: users' images have it */
    bool mount;            /* the bundle is an image volume */
    int certificate_s;     /* life of the server's certificate */
    int ca_s;              /* the certificate authority is replaced after this time */
    bool by_key;           /* no token reviews: agents authenticate with their job's key */
    void (*failed)(void *arg, const struct err *err); /* the keys cannot be used */
    /* This operator leads, and its plane is missing: another one should lead. Called again after
     * twice the time, 2 minutes at most. NULL: there is no other one. */
    void (*missing)(void *arg, const char *why);
    /* A certificate could not be replaced: an Event. Called once for each state. */
    void (*warn)(void *arg, const char *reason, const char *note);
    void *arg;
};

/* Borrows the texts of config. Listens on the socket and starts to read the keys. */
int coordination_open(struct coordination **ret, const struct coordination_config *config,
                      struct err *err);

/* This operator leads now. Calls driver_lead() as soon as the keys have been read and the plane
 * listens for agents. Does not wait for a plane that was missing (config.missing) and has not
 * listened since. term is higher than that of every earlier leader. If the plane is lost later, the
 * driver goes on, and the next plane gets all jobs and pods again. */
void coordination_lead(struct coordination *c, int64_t term);
void coordination_stop_leading(struct coordination *c);

/* Is the plane missing, so that another operator should lead? */
bool coordination_misses_plane(const struct coordination *c);

/* Why agents cannot be served yet, "": no problem. Valid until the next call. */
const char *coordination_problem(struct coordination *c);

/* NULL while this operator does not lead, or has no plane. */
struct plane_mirror *coordination_mirror(const struct coordination *c);

void coordination_metrics(const struct coordination *c, struct buf *dst);

/* NULL is fine. */
void coordination_close(struct coordination *c);

#endif
