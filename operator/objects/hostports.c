/* SPDX-License-Identifier: Apache-2.0
 *
 * hostports: see hostports.h.
 */
#include "operator/objects/hostports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/objects/parts.h"

void hostports_fini(struct hostports *p)
{
    free(p->all);
    *p = (struct hostports){.n = 0};
}

int hostports_add(struct hostports *p, const struct hostports *more)
{
    if (more->n == 0)
        return 0;
    struct hostport *all = realloc(p->all, (p->n + more->n) * sizeof(*all));
    if (!all)
        return -ENOMEM;
    memcpy(all + p->n, more->all, more->n * sizeof(*all));
    p->all = all;
    p->n += more->n;
    return 0;
}

/* Adds the ports of one container. Host is the whole node's network. */
static int take(json_t *container, bool host, struct hostports *p, struct err *err)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(container, "ports"), i, item)
    {
        struct hostport port = {.port = 0};
        json_int_t number = json_integer_value(json_object_get(item, "hostPort"));
        const char *protocol = parts_text(item, "protocol"), *ip = parts_text(item, "hostIP");
        if (number == 0 && host)
            number = json_integer_value(json_object_get(item, "containerPort"));
        if (number <= 0 || number > UINT16_MAX)
            continue;
        if (p->n == HOSTPORTS_MAX)
            return err_set(err, E2BIG, "more than %d host ports", HOSTPORTS_MAX);
        port.port = (uint16_t)number;
        snprintf(port.protocol, sizeof(port.protocol), "%s", *protocol ? protocol : "TCP");
        snprintf(port.ip, sizeof(port.ip), "%s", strcmp(ip, "0.0.0.0") == 0 ? "" : ip);
        if (hostports_add(p, &(struct hostports){&port, 1}) < 0)
            return err_set(err, ENOMEM, "no memory");
    }
    return 0;
}

int hostports_parse(json_t *spec, struct hostports *ret, struct err *err)
{
    struct hostports p = {.n = 0};
    bool host = json_is_true(json_object_get(spec, "hostNetwork"));
    size_t i;
    json_t *container;
    int rc = 0;
    json_array_foreach(json_object_get(spec, "initContainers"), i, container)
    {
        if (rc == 0 && strcmp(parts_text(container, "restartPolicy"), "Always") == 0)
            rc = take(container, host, &p, err);
    }
    json_array_foreach(json_object_get(spec, "containers"), i, container)
    {
        if (rc == 0)
            rc = take(container, host, &p, err);
    }
    if (rc < 0) {
        hostports_fini(&p);
        return rc;
    }
    *ret = p;
    return 0;
}

/* As kube-scheduler: addresses are compared as texts, and only "0.0.0.0" stands for all. */
static bool conflict(const struct hostport *a, const struct hostport *b)
{
    return a->port == b->port && strcmp(a->protocol, b->protocol) == 0 &&
           (!a->ip[0] || !b->ip[0] || strcmp(a->ip, b->ip) == 0);
}

const struct hostport *hostports_conflict(const struct hostports *taken,
                                          const struct hostports *wanted)
{
    for (size_t i = 0; i < wanted->n; i++)
        for (size_t k = 0; k < taken->n; k++)
            if (conflict(&taken->all[k], &wanted->all[i]))
                return &wanted->all[i];
    return NULL;
}
