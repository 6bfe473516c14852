/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: see lease.h.
 */
#include "operator/api/lease.h"

#include <stdio.h>
#include <string.h>

#include "operator/objects/stamp.h"

#define DURATION_MAX 86400 /* seconds; a longer lease is refused as a mistake */

static int read_stamp(const char *text, const char *field, int64_t *ret, struct err *err)
{
    if (text && stamp_parse(text, ret) < 0)
        return err_set(err, EINVAL, "a lease: %s is no time", field);
    return 0;
}

int lease_parse(const char *text, size_t len, struct lease *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    struct lease l = {0};
    const char *version = "", *uid = "", *holder = "", *acquired = NULL, *renewed = NULL;
    json_int_t duration = 0, transitions = 0;
    int rc = json_read(text, len, "a lease", &j, err);
    if (rc == 0)
        rc = json_expect(j, "a lease", err, "{s:{s:s, s?s}, s?{s?s, s?I, s?I, s?s, s?s}}",
                         "metadata", "resourceVersion", &version, "uid", &uid, "spec",
                         "holderIdentity", &holder, "leaseDurationSeconds", &duration,
                         "leaseTransitions", &transitions, "acquireTime", &acquired, "renewTime",
                         &renewed);
    if (rc == 0)
        rc = read_stamp(acquired, "acquireTime", &l.acquired_us, err);
    if (rc == 0)
        rc = read_stamp(renewed, "renewTime", &l.renewed_us, err);
    if (rc < 0)
        return rc;
    if (!*version || strlen(version) >= sizeof(l.version) || strlen(holder) >= sizeof(l.holder))
        return err_set(err, EINVAL, "a lease: its holder or resourceVersion is empty or too long");
    if (duration < 0 || duration > DURATION_MAX || transitions < 0)
        return err_set(err, EINVAL,
                       "a lease: its duration (%lld s) or number of transitions (%lld) is invalid",
                       (long long)duration, (long long)transitions);
    snprintf(l.holder, sizeof(l.holder), "%s", holder);
    snprintf(l.version, sizeof(l.version), "%s", version);
    if (strlen(uid) < sizeof(l.uid))
        snprintf(l.uid, sizeof(l.uid), "%s", uid);
    l.duration_s = duration;
    l.transitions = transitions;
    *ret = l;
    return 0;
}

char *lease_body(const struct lease *l, const char *namespace, const char *name)
{
    char acquired[STAMP_MAX], renewed[STAMP_MAX];
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:I, s:I, s:s, s:s}}", "apiVersion",
        "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "namespace", namespace,
        "spec", "holderIdentity", l->holder, "leaseDurationSeconds", (json_int_t)l->duration_s,
        "leaseTransitions", (json_int_t)l->transitions, "acquireTime",
        stamp_text(l->acquired_us, acquired), "renewTime", stamp_text(l->renewed_us, renewed));
    if (j && l->version[0] &&
        json_object_set_new(json_object_get(j, "metadata"), "resourceVersion",
                            json_string(l->version)) < 0)
        return NULL;
    return json_write(j);
}
