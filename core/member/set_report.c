/* SPDX-License-Identifier: Apache-2.0
 *
 * set_report: see set_report.h.
 */
#include "core/member/set_report.h"

#include "core/base/buf.h"
#include "core/json/json.h"
#include "core/member/protocol.h"

/* ---- the frame ------------------------------------------------------------------------------ */

/* 0 stands for a number that JSON cannot have. */
static uint64_t take_u63(struct reader *r)
{
    uint64_t n = reader_u64(r);
    return n <= INT64_MAX ? n : 0;
}

static void take_broken(struct reader *r, struct set_report *ret)
{
    ret->broken = reader_u32(r);
    ret->listed = ret->broken < CTL_BROKEN_MAX ? (int)ret->broken : CTL_BROKEN_MAX;
    for (int i = 0; i < ret->listed; i++) {
        struct broken_set *b = &ret->list[i];
        b->number = reader_u32(r);
        b->since = (int64_t)take_u63(r);
        reader_str(r, b->text, sizeof(b->text));
    }
}

static void take_gpu(struct reader *r, struct set_report *ret)
{
    ret->communicators = reader_u32(r);
    if (ret->communicators == 0)
        return;
    ret->gpu_memory_left = take_u63(r);
    ret->gpu_memory = take_u63(r);
}

int set_report_take(const uint8_t *body, size_t len, struct set_report *ret)
{
    struct reader r = reader_over(body, len);
    struct set_report got = *ret;
    got.n = reader_u32(&r);
    got.broken = 0;
    got.listed = 0;
    got.communicators = got.gpu_memory_left = got.gpu_memory = 0;
    if (r.pos < r.len) /* older ranks end here */
        take_broken(&r, &got);
    if (r.pos < r.len) /* or here */
        take_gpu(&r, &got);
    if (r.failed || got.broken > got.n)
        return -EPROTO;
    *ret = got;
    return 0;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *list_broken(const struct set_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->listed; i++)
        json_append(&list, json_pack("{s:I, s:I, s:o}", "set", (json_int_t)r->list[i].number,
                                     "since", (json_int_t)r->list[i].since, "text",
                                     json_lossy_text(r->list[i].text)));
    return list;
}

void set_report_put(const struct set_report *r, json_t **j)
{
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {
        {"sets", r->n},
        {"descriptors", r->descriptors},
        {"descriptors_max", r->descriptors_max},
        {"segments", r->segments},
        {"memory_left", r->memory_left},
        {"memory_limit", r->memory_limit},
        {"communicators", r->communicators},
        {"gpu_memory_left", r->gpu_memory_left},
        {"gpu_memory", r->gpu_memory},
        {"broken", r->broken},
    };
    for (size_t i = 0; r->n && i < sizeof(fields) / sizeof(fields[0]); i++)
        json_put(j, fields[i].key, json_integer((json_int_t)fields[i].value));
    if (r->n && r->broken)
        json_put(j, "broken_sets", list_broken(r));
}

static int read_broken(json_t *j, struct broken_set *ret, struct err *err)
{
    const char *text = "";
    json_int_t number = 0, since = 0;
    int rc = json_expect(j, "report: broken set", err, "{s:I, s:I, s:s}", "set", &number, "since",
                         &since, "text", &text);
    if (rc == 0 && (number < 0 || number > UINT32_MAX))
        rc = err_set(err, EINVAL, "report: set %lld", (long long)number);
    if (rc < 0)
        return rc;
    ret->number = (uint32_t)number;
    ret->since = since;
    return member_copy_text(ret->text, sizeof(ret->text), text, "report: broken set", err);
}

static uint64_t count(json_int_t n)
{
    return n > 0 ? (uint64_t)n : 0;
}

int set_report_read(json_t *j, struct set_report *ret, struct err *err)
{
    json_int_t n = 0, fds = 0, most = 0, segments = 0, left = 0, limit = 0, broken = 0;
    json_int_t communicators = 0, gpu_left = 0, gpu = 0;
    json_t *list = NULL;
    int rc = json_expect(
        j, "report: sets", err, "{s?I, s?I, s?I, s?I, s?I, s?I, s?I, s?I, s?I, s?I, s?o}", "sets",
        &n, "descriptors", &fds, "descriptors_max", &most, "segments", &segments, "memory_left",
        &left, "memory_limit", &limit, "communicators", &communicators, "gpu_memory_left",
        &gpu_left, "gpu_memory", &gpu, "broken", &broken, "broken_sets", &list);
    struct set_report got = {.n = count(n),
                             .descriptors = count(fds),
                             .descriptors_max = count(most),
                             .segments = count(segments),
                             .memory_left = count(left),
                             .memory_limit = count(limit),
                             .communicators = count(communicators),
                             .gpu_memory_left = count(gpu_left),
                             .gpu_memory = count(gpu),
                             .broken = count(broken)};
    for (size_t i = 0; rc == 0 && i < json_array_size(list) && got.listed < CTL_BROKEN_MAX; i++)
        rc = read_broken(json_array_get(list, i), &got.list[got.listed++], err);
    if (rc == 0)
        *ret = got;
    return rc;
}
