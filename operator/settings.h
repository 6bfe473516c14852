/* SPDX-License-Identifier: Apache-2.0
 *
 * settings: hvd-operator's command line and environment. Called by main_hvd-operator.c. Texts are
 * the command line's and the environment's.
 */
#ifndef HVD_OPERATOR_SETTINGS_H
#define HVD_OPERATOR_SETTINGS_H

#include <stdbool.h>

#include "core/base/err.h"
#include "operator/page/page.h"

struct settings {
    const char *kubeconfig, *context; /* NULL: found */
    const char *namespace;            /* NULL: all */
    const char *metrics;              /* ADDRESS:PORT, "": none */
    enum page_access page;            /* who may look at the page there */
    const char *agents;               /* ADDRESS:PORT where agents dial, "": pods get no agent */
    const char *agents_url; /* by which they do; NULL: by the Service, or no agents outside a pod */
    const char *bundle;     /* image, NULL: users' images have it */
    bool mount;             /* as an image volume */
    bool elect;
    const char *lease, *lease_namespace; /* lease_namespace NULL: the access's, "default" */
    int lease_s, renew_s, retry_s;
    const char *identity; /* NULL: made up */
    const char *pod_name, *pod_namespace;
    int verbose;
};

enum settings_what { SETTINGS_RUN, SETTINGS_HELP, SETTINGS_VERSION, SETTINGS_STATES };

/* -EINVAL: err says what is wrong with it. */
int settings_parse(int argc, char **argv, struct settings *ret, enum settings_what *ret_what,
                   struct err *err);

const char *settings_help(void);

#endif
