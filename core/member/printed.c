/* SPDX-License-Identifier: Apache-2.0
 *
 * printed: the body of POST /v1/output. See protocol.h.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/json/json.h"
#include "core/member/protocol.h"

char *printed_write(const struct printed_body *body)
{
    auto_json json_t *j =
        json_pack("{s:s, s:I, s:I, s:b, s:o}", "agent", body->agent, "seq", (json_int_t)body->seq,
                  "lost", (json_int_t)body->lost, "end", body->end, "frames",
                  json_bytes(body->frames.data, body->frames.len));
    return json_write(j);
}

int printed_read(const char *text, size_t len, struct printed_body *ret, struct err *err)
{
    struct printed_body body = {0};
    const char *agent = "", *frames = "";
    json_int_t seq = 0, lost = 0;
    int end = 0;
    size_t n = 0;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "output", &j, err);
    if (rc == 0)
        rc = json_expect(j, "output", err, "{s:s, s:I, s?I, s?b, s:s}", "agent", &agent, "seq",
                         &seq, "lost", &lost, "end", &end, "frames", &frames);
    if (rc == 0 && (seq < 1 || lost < 0))
        rc = err_set(err, EINVAL, "output: seq or lost");
    if (rc == 0)
        rc = member_copy_text(body.agent, sizeof(body.agent), agent, "output: agent", err);
    if (rc < 0)
        return rc;
    auto_free uint8_t *bytes = malloc(OUTPUT_MAX);
    if (!bytes)
        return err_set(err, ENOMEM, "no memory for output");
    rc = json_bytes_read(frames, "output: frames", bytes, OUTPUT_MAX, &n, err);
    if (rc < 0)
        return rc;
    buf_put(&body.frames, bytes, n);
    if (body.frames.failed) {
        printed_fini(&body);
        return err_set(err, ENOMEM, "no memory for output");
    }
    body.seq = (uint64_t)seq;
    body.lost = (uint64_t)lost;
    body.end = end;
    *ret = body;
    return 0;
}

void printed_fini(struct printed_body *body)
{
    buf_fini(&body->frames);
    *body = (struct printed_body){0};
}
