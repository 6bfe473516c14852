/* SPDX-License-Identifier: Apache-2.0
 *
 * job_drains: see job_drains.h.
 */
#include "operator/objects/job_drains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/objects/parts.h"

static struct job_drain *find(const struct job_drains *d, const char *node)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->all[i].node, node) == 0)
            return &d->all[i];
    return NULL;
}

const struct job_drain *job_drains_find(const struct job_drains *d, const char *node)
{
    const struct job_drain *found = find(d, node);
    return found || d->n < JOB_DRAINS_MAX ? found : &d->all[d->n - 1];
}

int job_drains_add(struct job_drains *d, const char *node, int64_t since)
{
    if (d->n == JOB_DRAINS_MAX || find(d, node))
        return 0;
    struct job_drain *grown = realloc(d->all, ((size_t)d->n + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    d->all = grown;
    grown[d->n] = (struct job_drain){.since = since};
    snprintf(grown[d->n].node, sizeof(grown[d->n].node), "%s", node);
    d->n++;
    return 0;
}

void job_drains_remove(struct job_drains *d, int i)
{
    d->n--;
    memmove(d->all + i, d->all + i + 1, (size_t)(d->n - i) * sizeof(*d->all));
}

int64_t job_drains_first(const struct job_drains *d)
{
    int64_t first = d->n > 0 ? d->all[0].since : MOMENT_NONE;
    for (int i = 1; i < d->n; i++)
        first = d->all[i].since < first ? d->all[i].since : first;
    return first;
}

int job_drains_copy(const struct job_drains *d, struct job_drains *ret)
{
    struct job_drains to = {.n = d->n};
    if (d->n > 0 && !(to.all = malloc((size_t)d->n * sizeof(*to.all))))
        return -ENOMEM;
    if (d->n > 0)
        memcpy(to.all, d->all, (size_t)d->n * sizeof(*to.all));
    *ret = to;
    return 0;
}

void job_drains_fini(struct job_drains *d)
{
    free(d->all);
    *d = (struct job_drains){0};
}

int job_drains_parse(json_t *list, struct job_drains *ret)
{
    struct job_drains d = {0};
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        int64_t since = MOMENT_NONE;
        const char *node = parts_text(one, "node");
        moment_parse(parts_text(one, "since"), &since);
        int n = d.n;
        if (*node && since != MOMENT_NONE && job_drains_add(&d, node, since) < 0) {
            job_drains_fini(&d);
            return -ENOMEM;
        }
        if (d.n > n)
            d.all[n].over = json_is_true(json_object_get(one, "overLimit"));
    }
    *ret = d;
    return 0;
}

json_t *job_drains_write(const struct job_drains *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->n; i++) {
        char since[MOMENT_SIZE];
        json_t *one = json_object();
        moment_write(d->all[i].since, since);
        json_put(&one, "node", json_lossy_string(d->all[i].node, strlen(d->all[i].node)));
        json_put(&one, "since", json_string(since));
        if (d->all[i].over)
            json_put(&one, "overLimit", json_true());
        json_append(&list, one);
    }
    return list;
}
