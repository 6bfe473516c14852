/* SPDX-License-Identifier: Apache-2.0
 *
 * event: one line of a watch. Pure. Called by informer.c.
 */
#ifndef HVD_OPERATOR_API_EVENT_H
#define HVD_OPERATOR_API_EVENT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/json/json.h"

enum event_type { EVENT_ADDED, EVENT_MODIFIED, EVENT_DELETED, EVENT_BOOKMARK, EVENT_ERROR };

struct event {
    enum event_type type;
    json_t *object;      /* owned */
    const char *version; /* resourceVersion, inside object; "" in an error */
    bool initial_end;    /* a bookmark: what was there when the watch began has been sent */
    int code;            /* of an error: HTTP's, 410: the version is too old; 0: not said */
    const char *message; /* of an error, "" else; inside object */
};

/* -EINVAL, -ENOMEM; *ret is untouched then. */
int event_parse(const char *line, size_t len, struct event *ret, struct err *err);

void event_fini(struct event *e);

/* What every object has; borrowed from it. namespace is "" where there is none. */
struct event_meta {
    const char *name, *namespace, *uid, *version;
};

int event_meta(json_t *object, struct event_meta *ret, struct err *err);

#endif
