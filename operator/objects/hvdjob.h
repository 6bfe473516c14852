/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob: an HvdJob as the operator sees it: its spec with defaults in place, and its status.
 * hvdjob_parse() makes one of one JSON object; whoever has it calls hvdjob_fini().
 *
 * A spec that cannot be run is no error here: `refused` says why, and that becomes a condition.
 */
#ifndef HVD_OPERATOR_OBJECTS_HVDJOB_H
#define HVD_OPERATOR_OBJECTS_HVDJOB_H

#include "operator/objects/hvdjob_status.h"
#include "operator/objects/podspec.h"

#define HVDJOB_API         "hvd.dev/v1alpha1"
#define HVDJOB_KIND        "HvdJob"
#define HVDJOB_MANAGER     "hvd.dev/hvd-operator" /* spec.runPolicy.managedBy; nothing means us */
#define HVDJOB_NAME_MAX    48 /* so that "NAME-99999-99999" is a host name of at most 63 */
#define HVDJOB_WORKERS_MAX 10000

enum gang_backend { GANG_AUTO, GANG_GATES, GANG_NATIVE, GANG_COSCHEDULING, GANG_VOLCANO };
enum clean_policy { CLEAN_RUNNING, CLEAN_ALL, CLEAN_NONE };

struct hvdjob {
    char *namespace_, *name, *version; /* version: resourceVersion */
    char uid[64];
    int64_t generation, created;
    bool deleting;
    bool ours; /* not another controller's by managedBy */

    /* Without minWorkers and maxWorkers a job is not elastic: all workers or none. */
    bool elastic;
    int workers, min, max, slots;
    bool says_workers; /* spec.workers is there: what the scale subresource shows */

    enum gang_backend backend;
    int gang_timeout, probe; /* seconds; probe 0: never */
    enum clean_policy clean;
    int ttl, deadline; /* seconds, -1: none */
    int backoff_limit;
    bool suspend;
    const char *doctor; /* "fail", "warn", "off". Of the program */
    int doctor_level;   /* how much it looks at: 1, 2 */

    char *template_text; /* spec.template, compact */
    char shape[17];      /* of what cannot change while there are workers, in hexadecimal */
    struct podspec podspec;
    char *refused; /* why it cannot be run, NULL: it can */

    struct hvdjob_status status;
};

/* -EINVAL: not even a name; -ENOMEM; *ret is untouched then. */
int hvdjob_parse(json_t *j, struct resource_kinds *kinds, struct hvdjob *ret, struct err *err);
void hvdjob_fini(struct hvdjob *job);

#endif
