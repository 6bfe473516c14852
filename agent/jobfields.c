/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfields: see jobfields.h.
 */
#include "agent/jobfields.h"

#include <stdio.h>
#include <string.h>

#include "core/base/nearest.h"

static const struct field {
    const char *parent, *name;
    enum jobfield use;
} fields[] = {
    {"spec", "workers", JOBFIELD_USED},
    {"spec", "minWorkers", JOBFIELD_USED},
    {"spec", "maxWorkers", JOBFIELD_USED},
    {"spec", "slotsPerWorker", JOBFIELD_USED},
    {"spec", "keepPlaces", JOBFIELD_USED},
    {"spec", "gang", JOBFIELD_CLUSTER_MAP},
    {"spec", "doctor", JOBFIELD_USED_MAP},
    {"spec", "runPolicy", JOBFIELD_CLUSTER_MAP},
    {"spec", "template", JOBFIELD_USED},
    {"spec.gang", "backend", JOBFIELD_CLUSTER},
    {"spec.gang", "timeoutSeconds", JOBFIELD_CLUSTER},
    {"spec.gang", "probeSeconds", JOBFIELD_CLUSTER},
    {"spec.doctor", "level", JOBFIELD_CLUSTER},
    {"spec.doctor", "policy", JOBFIELD_USED},
    {"spec.runPolicy", "cleanPodPolicy", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "ttlSecondsAfterFinished", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "activeDeadlineSeconds", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "backoffLimit", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "failurePolicy", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "suspend", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "drainPolicy", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "managedBy", JOBFIELD_CLUSTER},
};

#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

enum jobfield jobfield_find(const char *parent, const char *name)
{
    for (size_t i = 0; i < NFIELDS; i++)
        if (strcmp(fields[i].parent, parent) == 0 && strcmp(fields[i].name, name) == 0)
            return fields[i].use;
    return JOBFIELD_UNKNOWN;
}

void jobfield_hint(const char *parent, const char *name, char *dst, size_t size)
{
    struct nearest near;
    nearest_init(&near, name);
    size_t n = (size_t)snprintf(dst, size, "no such field; there are");
    for (size_t i = 0; i < NFIELDS; i++) {
        if (strcmp(fields[i].parent, parent) != 0)
            continue;
        if (n < size)
            n += (size_t)snprintf(dst + n, size - n, " %s", fields[i].name);
        nearest_try(&near, fields[i].name);
    }
    if (nearest_best(&near))
        snprintf(dst, size, "no such field; did you mean %s?", nearest_best(&near));
}
