/* SPDX-License-Identifier: Apache-2.0
 *
 * changes: the bodies that ask for planned changes: POST /v1/scale and /v1/drain. See protocol.h.
 */
#include <string.h>

#include "core/json/json.h"
#include "core/member/protocol.h"

int scale_read(const char *text, size_t len, struct scale_body *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    json_int_t np = 0;
    int rc = json_read(text, len, "scale", &j, err);
    if (rc == 0)
        rc = json_expect(j, "scale", err, "{s:I}", "np", &np);
    if (rc == 0 && (np < 1 || np > MEMBER_RANKS_MAX))
        rc = err_set(err, EINVAL, "scale: np %lld: want 1 to %d", (long long)np, MEMBER_RANKS_MAX);
    if (rc == 0)
        ret->np = (int)np;
    return rc;
}

char *drain_write(const struct drain_body *body)
{
    auto_json json_t *j = body->host[0] ? json_pack("{s:s}", "host", body->host)
                                        : json_pack("{s:i}", "rank", body->rank);
    return json_write(j);
}

int drain_read(const char *text, size_t len, struct drain_body *ret, struct err *err)
{
    const char *host = NULL;
    struct drain_body body = {.rank = -1};
    json_int_t rank = -1;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "drain", &j, err);
    if (rc == 0)
        rc = json_expect(j, "drain", err, "{s?I, s?s}", "rank", &rank, "host", &host);
    if (rc == 0 && (rank < 0) == (!host || !host[0]))
        rc = err_set(err, EINVAL, "drain: want a rank or a host");
    if (rc == 0 && rank >= MEMBER_RANKS_MAX)
        rc = err_set(err, EINVAL, "drain: rank %lld", (long long)rank);
    if (rc == 0 && host)
        rc = member_copy_text(body.host, sizeof(body.host), host, "drain: host", err);
    if (rc < 0)
        return rc;
    body.rank = (int)rank;
    *ret = body;
    return 0;
}
