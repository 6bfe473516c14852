/* SPDX-License-Identifier: Apache-2.0
 *
 * podspec: see podspec.h.
 */
#include "operator/objects/podspec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

static bool nothing(json_t *j)
{
    return !j || json_is_null(j) || (json_is_array(j) && json_array_size(j) == 0);
}

/* Returns the name of a field that the scheduler considers and fit.h does not; NULL: none is set. A
 * gang with such a field may not fit although fit_count() says that it does. */
static const char *unjudged(json_t *spec)
{
    static const char *const fields[] = {"affinity", "topologySpreadConstraints", "resourceClaims",
                                         "nodeName", "schedulingGates"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (!nothing(json_object_get(spec, fields[i])))
            return fields[i];
    size_t i;
    json_t *volume;
    json_array_foreach(json_object_get(spec, "volumes"), i,
                       volume) if (json_object_get(volume, "persistentVolumeClaim") ||
                                   json_object_get(volume, "ephemeral")) return "volumes";
    return NULL;
}

void podspec_fini(struct podspec *s)
{
    resources_fini(&s->requests);
    free(s->names);
    hostports_fini(&s->ports);
    labels_fini(&s->selector);
    taints_fini(&s->tolerated);
    free(s->namespace_);
    labels_fini(&s->labels);
    *s = (struct podspec){0};
}

static int parse_parts(json_t *spec, struct podspec *s, struct err *err)
{
    snprintf(s->scheduler, sizeof(s->scheduler), "%s", parts_text(spec, "schedulerName"));
    int rc = labels_parse(json_object_get(spec, "nodeSelector"), &s->selector, err);
    if (rc < 0) {
        err_prefix(err, "nodeSelector");
        return rc;
    }
    rc = tolerations_parse(json_object_get(spec, "tolerations"), &s->tolerated, err);
    return rc < 0 ? rc : hostports_parse(spec, &s->ports, err);
}

int podspec_parse(json_t *spec, struct podspec *ret, struct err *err)
{
    struct podspec s = {.unjudged = unjudged(spec)};
    struct buf names = {0};
    int rc = podspec_requests(spec, NULL, &names, &s.requests, err);
    if (rc == 0 && names.len > 0) {
        buf_put(&names, "", 1);
        rc = names.failed ? err_set(err, ENOMEM, "no memory") : 0;
    }
    s.names = (char *)names.data;
    rc = rc < 0 ? rc : parse_parts(spec, &s, err);
    if (rc < 0) {
        podspec_fini(&s);
        return rc;
    }
    *ret = s;
    return 0;
}
