/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol: see protocol.h. Small bodies first; those with cards are in cards.c.
 */
#include "core/member/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "core/member/rejoin.h"

static const char *const note_names[NOTE_TYPES] = {
    [NOTE_LOST] = "lost",   [NOTE_ENDED] = "ended",   [NOTE_SIGNAL] = "signal",
    [NOTE_STOP] = "stop",   [NOTE_CHANGE] = "change", [NOTE_START] = "start",
    [NOTE_LEAVE] = "leave", [NOTE_EVICT] = "evict",   [NOTE_NUMBERS] = "numbers",
};

static const char *const report_names[REPORT_TYPES] = {
    [REPORT_STARTED] = "started",   [REPORT_BYE] = "bye",   [REPORT_EXITED] = "exited",
    [REPORT_PROGRESS] = "progress", [REPORT_DEAD] = "dead", [REPORT_REPAIRED] = "repaired",
};

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int member_copy_text(char *dst, size_t size, const char *src, const char *field, struct err *err)
{
    if (strlen(src) >= size)
        return err_set(err, EINVAL, "%s: longer than %zu bytes", field, size - 1);
    memcpy(dst, src, strlen(src) + 1);
    return 0;
}

/* An array's length, at most MEMBER_RANKS_MAX * 4. -EINVAL. */
static int list_size(const json_t *list, const char *field, struct err *err)
{
    if (!json_is_array(list))
        return err_set(err, EINVAL, "%s: want a list", field);
    if (json_array_size(list) > MEMBER_RANKS_MAX * 4)
        return err_set(err, EINVAL, "%s: too long", field);
    return (int)json_array_size(list);
}

/* ---- join ---------------------------------------------------------------------------------- */

char *join_write(const struct join_body *body)
{
    auto_json json_t *j =
        json_pack("{s:s, s:s, s:s, s:i, s:i}", "agent", body->agent, "host", body->host, "version",
                  body->version, "slots", body->slots, "pid", body->pid);
    if (body->rejoin)
        json_put(&j, "rejoin", rejoin_pack(body->rejoin));
    return json_write(j);
}

static int join_rejoin(json_t *j, struct join_body *body, struct err *err)
{
    if (!j)
        return 0;
    struct rejoin *rejoin = calloc(1, sizeof(*rejoin));
    if (!rejoin)
        return err_set(err, ENOMEM, "no memory for what an agent knows");
    int rc = rejoin_unpack(j, rejoin, err);
    if (rc < 0)
        free(rejoin);
    else
        body->rejoin = rejoin;
    return rc;
}

int join_read(const char *text, size_t len, struct join_body *ret, struct err *err)
{
    const char *what = "join", *agent = "", *host = "", *version = "";
    struct join_body body = {0};
    json_t *rejoin = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, what, &j, err);
    if (rc == 0)
        rc = json_expect(j, what, err, "{s:s, s:s, s?s, s:i, s:i, s?o}", "agent", &agent, "host",
                         &host, "version", &version, "slots", &body.slots, "pid", &body.pid,
                         "rejoin", &rejoin);
    if (rc == 0)
        rc = member_copy_text(body.agent, sizeof(body.agent), agent, "join: agent", err);
    if (rc == 0)
        rc = member_copy_text(body.host, sizeof(body.host), host, "join: host", err);
    if (rc == 0)
        rc = member_copy_text(body.version, sizeof(body.version), version, "join: version", err);
    if (rc == 0)
        rc = join_rejoin(rejoin, &body, err);
    if (rc == 0)
        *ret = body;
    return rc;
}

void join_fini(struct join_body *body)
{
    if (body->rejoin)
        rejoin_fini(body->rejoin);
    free(body->rejoin);
    body->rejoin = NULL;
}

char *welcome_write(const struct welcome_body *body)
{
    auto_json json_t *assignments = json_array();
    for (int i = 0; i < body->nassignments; i++) {
        const struct assignment *s = &body->assignments[i];
        json_append(&assignments, json_pack("{s:i, s:i, s:i, s:i}", "member", s->member,
                                            "local_rank", s->local_rank, "cross_rank",
                                            s->cross_rank, "cross_size", s->cross_size));
    }
    auto_json json_t *j = json_pack("{s:s, s:i, s:b, s:i, s:b, s:O}", "job", body->job, "size",
                                    body->size, "elastic", body->elastic, "slots", body->slots,
                                    "post_output", body->post_output, "ranks", assignments);
    return json_write(j);
}

static int check_number(int member, int end, const char *what, struct err *err)
{
    if (member < 0 || member >= end)
        return err_set(err, EINVAL, "%s: member %d: want less than %d", what, member, end);
    return 0;
}

static int assignment_read(json_t *j, const struct welcome_body *body, struct assignment *ret,
                           struct err *err)
{
    const char *what = "welcome: rank";
    int rc = json_expect(j, what, err, "{s:i, s:i, s:i, s:i}", "member", &ret->member, "local_rank",
                         &ret->local_rank, "cross_rank", &ret->cross_rank, "cross_size",
                         &ret->cross_size);
    if (rc == 0)
        rc = check_number(ret->member, body->elastic ? MEMBER_NUMBER_MAX : body->size, what, err);
    if (rc == 0 && (ret->local_rank < 0 || ret->local_rank >= body->slots))
        rc = err_set(err, EINVAL, "%s: local rank %d of %d", what, ret->local_rank, body->slots);
    return rc;
}

/* Checks everything but the assignments. */
static int welcome_check(const struct welcome_body *body, int nassignments, struct err *err)
{
    if (body->size < 1 || body->size > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "welcome: size %d", body->size);
    if (body->slots < 0 || body->slots > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "welcome: slots %d", body->slots);
    if (nassignments > body->slots)
        return err_set(err, EINVAL, "welcome: %d ranks for %d slots", nassignments, body->slots);
    return 0;
}

int welcome_read(const char *text, size_t len, struct welcome_body *ret, struct err *err)
{
    const char *what = "welcome", *job = "";
    struct welcome_body body = {0};
    int elastic = 0, post_output = 0;
    json_t *assignments = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, what, &j, err);
    if (rc == 0)
        rc = json_expect(j, what, err, "{s:s, s:i, s:b, s:i, s?b, s:o}", "job", &job, "size",
                         &body.size, "elastic", &elastic, "slots", &body.slots, "post_output",
                         &post_output, "ranks", &assignments);
    if (rc == 0)
        rc = member_copy_text(body.job, sizeof(body.job), job, "welcome: job", err);
    int n = rc < 0 ? rc : list_size(assignments, "welcome: ranks", err);
    rc = n < 0 ? n : welcome_check(&body, n, err);
    if (rc < 0)
        return rc;
    body.elastic = elastic;
    body.post_output = post_output;
    body.assignments = calloc((size_t)n + 1, sizeof(*body.assignments));
    if (!body.assignments)
        return err_set(err, ENOMEM, "no memory");
    for (body.nassignments = 0; body.nassignments < n && rc == 0; body.nassignments++)
        rc = assignment_read(json_array_get(assignments, (size_t)body.nassignments), &body,
                             &body.assignments[body.nassignments], err);
    if (rc < 0)
        welcome_fini(&body);
    else
        *ret = body;
    return rc;
}

void welcome_fini(struct welcome_body *body)
{
    free(body->assignments);
    *body = (struct welcome_body){0};
}

/* ---- events -------------------------------------------------------------------------------- */

static json_t *numbers_pack(const struct rank_numbers *p)
{
    json_t *j = json_pack("{s:I, s:i, s:i, s:i, s:i, s:i}", "epoch", (json_int_t)p->epoch, "rank",
                          p->rank, "size", p->size, "local_size", p->local_size, "cross_rank",
                          p->cross_rank, "cross_size", p->cross_size);
    if (p->place != p->rank)
        json_put(&j, "place", json_integer(p->place));
    return j;
}

static json_t *note_pack(const struct note *n)
{
    json_t *j = json_pack("{s:s, s:i, s:i, s:I, s:o}", "type", note_names[n->type], "member",
                          n->member, "code", n->code, "epoch", (json_int_t)n->epoch, "text",
                          json_lossy_string(n->text, strlen(n->text)));
    if (n->type == NOTE_NUMBERS)
        json_put(&j, "numbers", numbers_pack(&n->numbers));
    return j;
}

char *notes_write(const struct notes_body *body)
{
    auto_json json_t *list = json_array();
    for (int i = 0; i < body->n; i++)
        json_append(&list, note_pack(&body->notes[i]));
    auto_json json_t *j = json_pack("{s:I, s:O}", "seq", (json_int_t)body->seq, "events", list);
    return json_write(j);
}

static int numbers_read(json_t *j, struct rank_numbers *ret, struct err *err)
{
    json_int_t epoch = 0;
    struct rank_numbers p = {.place = -1};
    int rc =
        json_expect(j, "event: numbers", err, "{s:I, s:i, s:i, s:i, s:i, s:i, s?i}", "epoch",
                    &epoch, "rank", &p.rank, "size", &p.size, "local_size", &p.local_size,
                    "cross_rank", &p.cross_rank, "cross_size", &p.cross_size, "place", &p.place);
    if (rc < 0)
        return rc;
    p.place = p.place < 0 ? p.rank : p.place;
    if (epoch < 1 || epoch > UINT32_MAX || p.size < 1 || p.size > MEMBER_RANKS_MAX || p.rank < 0 ||
        p.rank >= p.size || p.local_size < 1 || p.local_size > p.size || p.cross_rank < 0 ||
        p.cross_rank >= p.cross_size || p.cross_size > p.size || p.place < p.rank ||
        p.place >= MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "event: invalid numbers");
    p.epoch = (uint32_t)epoch;
    *ret = p;
    return 0;
}

static int note_read(json_t *j, struct note *ret, struct err *err)
{
    const char *type = "", *text = "";
    json_t *numbers = NULL;
    json_int_t epoch = 0;
    int rc = json_expect(j, "event", err, "{s:s, s:i, s:i, s:I, s?s, s?o}", "type", &type, "member",
                         &ret->member, "code", &ret->code, "epoch", &epoch, "text", &text,
                         "numbers", &numbers);
    if (rc == 0 && (epoch < 0 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "event: epoch %lld", (long long)epoch);
    if (rc == 0 && ret->member != -1)
        rc = check_number(ret->member, MEMBER_NUMBER_MAX, "event", err);
    if (rc < 0)
        return rc;
    int t = find_name(note_names, NOTE_TYPES, type);
    if (t < 0)
        return err_set(err, EINVAL, "event: unknown type \"%.40s\"", type);
    ret->type = (enum note_type)t;
    ret->epoch = (uint32_t)epoch;
    if (ret->type == NOTE_NUMBERS)
        rc = numbers_read(numbers, &ret->numbers, err);
    if (rc < 0)
        return rc;
    return member_copy_text(ret->text, sizeof(ret->text), text, "event: text", err);
}

int notes_read(const char *text, size_t len, struct notes_body *ret, struct err *err)
{
    struct notes_body body = {0};
    json_int_t seq = 0;
    json_t *list = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "events", &j, err);
    if (rc == 0)
        rc = json_expect(j, "events", err, "{s:I, s:o}", "seq", &seq, "events", &list);
    if (rc < 0)
        return rc;
    int n = list_size(list, "events", err);
    if (n < 0)
        return n;
    body.seq = (uint64_t)seq;
    body.notes = calloc((size_t)n + 1, sizeof(*body.notes));
    if (!body.notes)
        return err_set(err, ENOMEM, "no memory");
    for (body.n = 0; body.n < n && rc == 0; body.n++)
        rc = note_read(json_array_get(list, (size_t)body.n), &body.notes[body.n], err);
    if (rc < 0)
        notes_fini(&body);
    else
        *ret = body;
    return rc;
}

void notes_fini(struct notes_body *body)
{
    free(body->notes);
    *body = (struct notes_body){0};
}

/* ---- report -------------------------------------------------------------------------------- */

char *report_write(const struct report_body *body)
{
    auto_json json_t *list = json_array();
    for (int i = 0; i < body->n; i++) {
        const struct report_item *it = &body->items[i];
        json_t *one =
            json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:I, s:I}", "state", report_names[it->type],
                      "member", it->member, "pid", it->pid, "code", it->code, "text",
                      json_lossy_string(it->text, strlen(it->text)), "tail",
                      json_lossy_string(it->tail, strlen(it->tail)), "batches",
                      (json_int_t)it->batches, "bytes", (json_int_t)it->bytes);
        set_report_put(&it->sets, &one);
        if (it->type == REPORT_BYE)
            json_put(&one, "done", json_integer((json_int_t)it->done));
        if (it->type == REPORT_REPAIRED) {
            json_put(&one, "epoch", json_integer((json_int_t)it->epoch));
            json_put(&one, "ns", json_integer((json_int_t)it->ns));
        }
        json_append(&list, one);
    }
    auto_json json_t *j = json_pack("{s:s, s:I, s:O}", "agent", body->agent, "seq",
                                    (json_int_t)body->seq, "ranks", list);
    return json_write(j);
}

static int report_item_read(json_t *j, struct report_item *ret, struct err *err)
{
    const char *state = "", *text = "", *tail = "";
    json_int_t done = 0, batches = 0, bytes = 0, epoch = 0, ns = 0;
    int rc = json_expect(
        j, "report: rank", err, "{s:s, s:i, s?i, s?i, s?s, s?s, s?I, s?I, s?I, s?I, s?I}", "state",
        &state, "member", &ret->member, "pid", &ret->pid, "code", &ret->code, "text", &text, "tail",
        &tail, "done", &done, "batches", &batches, "bytes", &bytes, "epoch", &epoch, "ns", &ns);
    if (rc < 0)
        return rc;
    int t = find_name(report_names, REPORT_TYPES, state);
    if (t < 0)
        return err_set(err, EINVAL, "report: unknown state \"%.40s\"", state);
    if (done < 0)
        return err_set(err, EINVAL, "report: done %lld", (long long)done);
    ret->type = (enum report_type)t;
    ret->done = (uint64_t)done;
    ret->batches = (uint64_t)batches;
    ret->bytes = (uint64_t)bytes;
    ret->epoch = (uint32_t)epoch;
    ret->ns = (uint64_t)ns;
    rc = set_report_read(j, &ret->sets, err);
    if (rc == 0)
        rc = member_copy_text(ret->text, sizeof(ret->text), text, "report: text", err);
    return rc < 0 ? rc : member_copy_text(ret->tail, sizeof(ret->tail), tail, "report: tail", err);
}

int report_read(const char *text, size_t len, struct report_body *ret, struct err *err)
{
    struct report_body body = {0};
    const char *agent = "";
    json_int_t seq = 0;
    json_t *list = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "report", &j, err);
    if (rc == 0)
        rc = json_expect(j, "report", err, "{s:s, s:I, s:o}", "agent", &agent, "seq", &seq, "ranks",
                         &list);
    if (rc == 0)
        rc = member_copy_text(body.agent, sizeof(body.agent), agent, "report: agent", err);
    if (rc < 0)
        return rc;
    int n = list_size(list, "report: ranks", err);
    if (n < 0)
        return n;
    body.seq = (uint64_t)seq;
    body.items = calloc((size_t)n + 1, sizeof(*body.items));
    if (!body.items)
        return err_set(err, ENOMEM, "no memory");
    for (body.n = 0; body.n < n && rc == 0; body.n++)
        rc = report_item_read(json_array_get(list, (size_t)body.n), &body.items[body.n], err);
    if (rc < 0)
        report_body_fini(&body);
    else
        *ret = body;
    return rc;
}

void report_body_fini(struct report_body *body)
{
    free(body->items);
    *body = (struct report_body){0};
}
