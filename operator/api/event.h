/* SPDX-License-Identifier: Apache-2.0
 *
 * event: parses one event of a watch. Pure. Called by informer.c.
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
    bool initial_end;    /* a bookmark that ends the initial events of a streamed list */
    int code;            /* HTTP status of an error; 410: the version is too old; 0: none */
    const char *message; /* message of an error, else ""; points into object */
};

/* -EINVAL, -ENOMEM; *ret is untouched then. */
int event_parse(const char *line, size_t len, struct event *ret, struct err *err);

void event_fini(struct event *e);

/* Metadata that every object has; points into the object. namespace is "" if there is none. */
struct event_meta {
    const char *name, *namespace, *uid, *version;
};

int event_meta(json_t *object, struct event_meta *ret, struct err *err);

#endif
