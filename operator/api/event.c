/* SPDX-License-Identifier: Apache-2.0
 *
 * event: see event.h.
 */
#include "operator/api/event.h"

#include <string.h>

#include "operator/api/object.h"

static const char *const types[] = {
    [EVENT_ADDED] = "ADDED",       [EVENT_MODIFIED] = "MODIFIED", [EVENT_DELETED] = "DELETED",
    [EVENT_BOOKMARK] = "BOOKMARK", [EVENT_ERROR] = "ERROR",
};

static int type_of(const char *text, enum event_type *ret, struct err *err)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(types[i], text) == 0) {
            *ret = (enum event_type)i;
            return 0;
        }
    return err_set(err, EINVAL, "a watch: unknown event type %.20s", text);
}

static int read_error(struct event *e, struct err *err)
{
    e->message = "";
    return json_expect(e->object, "a watch's error", err, "{s?i, s?s}", "code", &e->code, "message",
                       &e->message);
}

static int read_bookmark(struct event *e, struct err *err)
{
    const char *end = "";
    int rc = json_expect(e->object, "a bookmark", err, "{s:{s:s, s?{s?s}}}", "metadata",
                         "resourceVersion", &e->version, "annotations", "k8s.io/initial-events-end",
                         &end);
    e->initial_end = rc == 0 && strcmp(end, "true") == 0;
    return rc;
}

static int read_change(struct event *e, struct err *err)
{
    struct event_meta meta;
    int rc = event_meta(e->object, &meta, err);
    if (rc == 0)
        e->version = meta.version;
    return rc;
}

int event_parse(const char *line, size_t len, struct event *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    struct event e = {.version = "", .message = ""};
    const char *type;
    const char *replaced;
    int rc = object_read(line, len, "a watch", &j, &replaced, err);
    if (rc == 0)
        rc = json_expect(j, "a watch", err, "{s:s, s:o}", "type", &type, "object", &e.object);
    if (rc == 0)
        rc = type_of(type, &e.type, err);
    if (rc == 0 && !json_is_object(e.object))
        rc = err_set(err, EINVAL, "a watch: its object is none");
    if (rc == 0 && sanitize_mark(e.object, replaced) < 0)
        rc = err_set(err, ENOMEM, "a watch: no memory");
    if (rc < 0)
        return rc;
    if (e.type == EVENT_ERROR)
        rc = read_error(&e, err);
    else
        rc = e.type == EVENT_BOOKMARK ? read_bookmark(&e, err) : read_change(&e, err);
    if (rc < 0)
        return rc;
    json_incref(e.object);
    *ret = e;
    return 0;
}

void event_fini(struct event *e)
{
    json_decref(e->object);
    e->object = NULL;
}

int event_meta(json_t *object, struct event_meta *ret, struct err *err)
{
    struct event_meta meta = {.namespace = "", .uid = ""};
    int rc = json_expect(object, "an object", err, "{s:{s:s, s?s, s?s, s:s}}", "metadata", "name",
                         &meta.name, "namespace", &meta.namespace, "uid", &meta.uid,
                         "resourceVersion", &meta.version);
    if (rc == 0)
        *ret = meta;
    return rc;
}
