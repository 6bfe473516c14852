/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime: see runtime.h.
 */
#include "operator/objects/runtime.h"

#include <stdlib.h>

#include "core/json/json.h"

void runtime_fini(struct runtime *r)
{
    resources_fini(&r->overhead);
    free(r->names);
    labels_fini(&r->selector);
    taints_fini(&r->tolerated);
    *r = (struct runtime){.names = NULL};
}

int runtime_parse(json_t *j, struct runtime *ret, struct err *err)
{
    struct runtime r = {.names = NULL};
    struct buf names = {0};
    json_t *scheduling = json_object_get(j, "scheduling");
    json_t *fixed = json_object_get(json_object_get(j, "overhead"), "podFixed");
    int rc = resources_parse(fixed, &names, &r.overhead, err);
    if (rc == 0 && r.overhead.n > RESOURCES_OTHERS_MAX)
        rc = err_set(err, E2BIG, "more than %d kinds of resources", RESOURCES_OTHERS_MAX);
    if (rc == 0 && names.len > 0)
        buf_put(&names, "", 1);
    r.names = (char *)names.data;
    if (rc == 0 && names.failed)
        rc = err_set(err, ENOMEM, "no memory");
    rc = rc < 0 ? rc : labels_parse(json_object_get(scheduling, "nodeSelector"), &r.selector, err);
    rc = rc < 0 ? rc
                : tolerations_parse(json_object_get(scheduling, "tolerations"), &r.tolerated, err);
    if (rc < 0) {
        runtime_fini(&r);
        err_prefix(err, "RuntimeClass");
        return rc;
    }
    *ret = r;
    return 0;
}
