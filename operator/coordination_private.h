/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination_private: shared by the files of coordination.
 */
#ifndef HVD_OPERATOR_COORDINATION_PRIVATE_H
#define HVD_OPERATOR_COORDINATION_PRIVATE_H

#include "operator/certificates.h"
#include "operator/coordination.h"
#include "operator/keystore.h"
#include "operator/link/link.h"
#include "operator/metrics/metrics.h"
#include "operator/plane_socket.h"
#include "operator/review.h"

struct coordination {
    struct coordination_config config;
    struct loop *loop;
    struct keystore *keystore;
    struct plane_socket *socket;
    struct link *link;           /* NULL: hvd-plane is not connected */
    struct plane_mirror *mirror; /* NULL: the plane has not been told to serve */
    struct reviewer *reviewer;   /* lives as long as mirror */
    bool leads, begun;           /* begun: driver_lead() was called */
    bool listens;                /* the plane listens for agents */
    char key[KEYS_JOB_MAX];      /* returned by the last key handler */
    int64_t term;
    unsigned planes; /* times that a plane was told to serve in this term */
    char host[256];  /* host name in config.url */
    char problem[160];
    char *roots;       /* that pods trust; the driver borrows it */
    int64_t issued;    /* seconds since 1970 at which the server's certificate was issued */
    int64_t until;     /* end of its life */
    char renewal[256]; /* why the last renewal failed, "": it did not */
    enum certificates_state certificates; /* as last warned of */
    /* gave_up: the plane was missing while this operator led, and has not listened since. mute: it
     * was connected then, and has not been started anew since. */
    bool gave_up, mute;
    uint64_t away_since;  /* clock_ns() since which the plane is not connected */
    uint64_t patience_ms; /* time for the plane to listen, before config.missing() */
    struct loop_timer ready, aging, missing;
    struct histogram recovery[2]; /* [0]: planned changes, [1]: losses */
};

/* coordination_handlers.c: handlers of the driver; arg is the coordination. */
struct driver_handlers coordination_handlers(struct coordination *c);

#endif
