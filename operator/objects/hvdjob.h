/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdjob: an HvdJob as a struct: its spec with defaults filled in, and its status. The caller of
 * hvdjob_parse() calls hvdjob_fini().
 *
 * An invalid spec is not an error of hvdjob_parse(): `refused` says what is wrong with it, and the
 * operator reports that in the condition Valid.
 */
#ifndef HVD_OPERATOR_OBJECTS_HVDJOB_H
#define HVD_OPERATOR_OBJECTS_HVDJOB_H

#include "operator/objects/hvdjob_status.h"
#include "operator/objects/podspec.h"

#define HVDJOB_API "hvd.dev/v1alpha1"
/* The value of spec.runPolicy.managedBy in jobs of this operator, and its default. */
#define HVDJOB_MANAGER     "hvd.dev/hvd-operator"
#define HVDJOB_NAME_MAX    48 /* so that "NAME-99999-99999" is a host name of at most 63 bytes */
#define HVDJOB_WORKERS_MAX 10000

enum gang_backend { GANG_AUTO, GANG_GATES, GANG_NATIVE, GANG_COSCHEDULING, GANG_VOLCANO };
enum clean_policy { CLEAN_RUNNING, CLEAN_ALL, CLEAN_NONE };
/* What a drained node means for the job: drain.h and budget.h. */
enum drain_policy { DRAIN_WAIT, DRAIN_SHRINK, DRAIN_RESTART, DRAIN_BLOCK };

struct hvdjob {
    char *namespace_, *name, *version; /* version: resourceVersion */
    char uid[64];
    int64_t generation, created;
    bool deleting;
    bool ours; /* managedBy names no other controller */

    /* A job with neither minWorkers nor maxWorkers is not elastic: it needs all workers, and min
     * and max are equal to workers. */
    bool elastic;
    int workers, min, max, slots;
    bool sized; /* false: the spec's sizes are invalid, and these are those of the job's workers */
    bool keep_places;  /* spec.keepPlaces */
    bool says_workers; /* spec.workers is set; else the scale subresource shows no number */

    enum gang_backend backend;
    int gang_timeout, probe; /* spec.gang.timeoutSeconds and probeSeconds; probe 0: never */
    enum clean_policy clean;
    enum drain_policy drain;
    int ttl, deadline; /* seconds, -1: none */
    int backoff_limit;
    json_t *failure_rules; /* runPolicy.failurePolicy.rules; owned, NULL: none */
    bool suspend;
    const char *doctor; /* "fail", "warn", "off"; a string constant */
    int doctor_level;   /* spec.doctor.level: 0 to 2 */

    char *template_text; /* spec.template as compact JSON */
    /* Hash of template, slots and back end, which must not change while workers exist; in
     * hexadecimal. */
    char template_hash[17];
    struct podspec podspec;
    char *refused; /* why the spec is invalid, NULL: it is valid */

    struct hvdjob_status status;
};

/* Parses the HvdJob j. -EINVAL: j has no name or uid. -ENOMEM. *ret is untouched on failure. */
int hvdjob_parse(json_t *j, struct hvdjob *ret, struct err *err);
void hvdjob_fini(struct hvdjob *job);

/* Has the template changed since the workers were created? Then no further ones are. status: the
 * job's, or the one that is about to be written. False: no workers exist. */
bool hvdjob_template_changed(const struct hvdjob *job, const struct hvdjob_status *status);

#endif
