/* SPDX-License-Identifier: Apache-2.0
 *
 * limitrange: see limitrange.h.
 */
#include "operator/objects/limitrange.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/parts.h"

void limitrange_fini(struct limitrange *l)
{
    resources_fini(&l->defaults);
    free(l->names);
    *l = (struct limitrange){.names = NULL};
}

/* Ends the list of names, and passes its ownership on. */
static int take_names(struct buf *names, char **ret, struct err *err)
{
    if (names->len > 0)
        buf_put(names, "", 1);
    if (names->failed)
        return err_set(err, ENOMEM, "no memory");
    *ret = (char *)names->data;
    *names = (struct buf){0};
    return 0;
}

int limitrange_parse(json_t *j, struct limitrange *ret, struct err *err)
{
    struct limitrange l = {.names = NULL};
    struct buf names = {0};
    size_t i;
    json_t *item;
    int rc = 0;
    json_array_foreach(json_object_get(json_object_get(j, "spec"), "limits"), i, item)
    {
        /* The API server has put "default" into "defaultRequest" where that names nothing. */
        if (rc == 0 && strcmp(parts_text(item, "type"), "Container") == 0)
            rc = resources_parse(json_object_get(item, "defaultRequest"), &names, &l.defaults, err);
    }
    if (rc == 0 && l.defaults.n > RESOURCES_OTHERS_MAX)
        rc = err_set(err, E2BIG, "more than %d kinds of resources", RESOURCES_OTHERS_MAX);
    rc = rc < 0 ? rc : take_names(&names, &l.names, err);
    if (rc < 0) {
        buf_fini(&names);
        limitrange_fini(&l);
        err_prefix(err, "LimitRange");
        return rc;
    }
    *ret = l;
    return 0;
}

static void put_names(struct buf *dst, const char *names)
{
    for (const char *p = names; p && *p; p += strlen(p) + 1)
        buf_put(dst, p, strlen(p) + 1);
}

int limitrange_merge(struct limitrange *into, const struct limitrange *more, struct err *err)
{
    struct buf names = {0};
    char *all = NULL;
    put_names(&names, into->names);
    put_names(&names, more->names);
    int rc = take_names(&names, &all, err);
    rc = rc < 0 ? rc : resources_max(&into->defaults, &more->defaults, err);
    if (rc < 0) {
        buf_fini(&names);
        free(all);
        return rc;
    }
    free(into->names);
    into->names = all;
    return 0;
}
