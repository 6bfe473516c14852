/* SPDX-License-Identifier: Apache-2.0
 *
 * settings: hvd-operator's command line and environment. Called by main_hvd-operator.c. All texts
 * point into argv and the environment.
 */
#ifndef HVD_OPERATOR_SETTINGS_H
#define HVD_OPERATOR_SETTINGS_H

#include <stdbool.h>

#include "core/base/err.h"
#include "operator/objects/signals.h"
#include "operator/page/page.h"
#include "operator/reconcile/queue.h"

struct settings {
    const char *kubeconfig, *context; /* NULL: the defaults of access.h */
    const char *namespace;            /* NULL: all namespaces */
    const char *metrics;              /* ADDRESS:PORT of the web server, "": none */
    enum page_access page;            /* who may read the web page */
    const char *plane_socket;         /* path on which hvd-plane connects; NULL: no agents */
    long plane_uid;                   /* the user that hvd-plane runs as; -1: the same */
    int plane_s;                      /* without a plane for so long, the leader gives up */
    const char *agents_url;           /* URL that agents dial; NULL: the Service's */
    int certificate_s, ca_s;   /* lives of the plane\'s certificate, and of the CA until the next */
    const char *bundle;        /* image, NULL: users' images contain the bundle */
    bool mount;                /* the bundle is an image volume */
    struct queue_policy queue; /* limits for all jobs */
    int drain_s;               /* how long a job may delay a drain, in seconds */
    struct signals signals;    /* which taints and labels of nodes announce a drain */
    bool elect;                /* use leader election */
    const char *lease, *lease_namespace; /* lease_namespace NULL: of the pod or the kubeconfig */
    int lease_s, renew_s, retry_s;
    const char *identity; /* holder in the lease; NULL: pod or host name and a random number */
    const char *pod_name, *pod_namespace;
    int verbose;
};

enum settings_what { SETTINGS_RUN, SETTINGS_HELP, SETTINGS_VERSION, SETTINGS_STATES };

/* -EINVAL: err names the option and what it takes. */
int settings_parse(int argc, char **argv, struct settings *ret, enum settings_what *ret_what,
                   struct err *err);

const char *settings_help(void);

#endif
