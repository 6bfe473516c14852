/* SPDX-License-Identifier: Apache-2.0
 *
 * service: see service.h. A handler is a straight line: body -> roster -> body.
 */
#include "core/member/service.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/json/json.h"

static int reply_text(struct server_reply *reply, char *body)
{
    reply->status = body ? 200 : 503;
    reply->body = body;
    return 0;
}

static int reply_error(struct server_reply *reply, int rc, const struct err *err)
{
    reply->status = rc == -ENOENT   ? 404
                    : rc == -ENOMEM ? 503
                    : rc == -EINVAL ? 400
                                    : 409; /* -EEXIST, -ESTALE, -EPROTO */
    reply->body = json_error_body(err_text(err));
    return 0;
}

static int reply_empty(struct server_reply *reply)
{
    reply->status = 204;
    return 0;
}

static int do_join(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct join_body body;
    int rc = join_read(q->body, q->len, &body, &err);
    if (rc == 0)
        rc = roster_join(s->roster, &body, clock_ns(), &err);
    if (rc < 0)
        return reply_error(reply, rc, &err);
    struct roster_agent *a = &s->roster->agents[roster_find(s->roster, body.agent)];
    struct welcome_body welcome = {
        .size = s->roster->size, .slots = a->nranks, .nseats = a->nranks};
    memcpy(welcome.job, s->roster->job, sizeof(welcome.job));
    welcome.seats = calloc((size_t)a->nranks + 1, sizeof(*welcome.seats));
    for (int i = 0; welcome.seats && i < a->nranks; i++)
        welcome.seats[i] = s->roster->ranks[a->first + i].seat;
    reply_text(reply, welcome.seats ? welcome_write(&welcome) : NULL);
    welcome_fini(&welcome);
    s->changed(s->arg);
    return 0;
}

static int do_cards(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct cards_body body;
    int rc = cards_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(reply, rc, &err);
    rc = roster_cards(s->roster, &body, clock_ns(), &err);
    cards_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(reply, rc, &err) : reply_empty(reply);
}

static int do_report(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct report_body body;
    int rc = report_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(reply, rc, &err);
    rc = roster_report(s->roster, &body, clock_ns(), &err);
    report_body_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(reply, rc, &err) : reply_empty(reply);
}

static int do_findings(struct service *s, const struct server_request *q,
                       struct server_reply *reply)
{
    struct err err = {0};
    struct findings_body body;
    int rc = findings_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(reply, rc, &err);
    rc = roster_findings(s->roster, &body, clock_ns(), &err);
    findings_body_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(reply, rc, &err) : reply_empty(reply);
}

/* The agent that asks is alive. 0 or a reply was made and 1. */
static int check_agent(struct service *s, const struct server_request *q,
                       struct server_reply *reply)
{
    struct err err = {0};
    int index = roster_find(s->roster, q->agent);
    if (index >= 0 && s->roster->agents[index].joined && !s->roster->agents[index].gone) {
        s->roster->agents[index].seen = clock_ns();
        return 0;
    }
    err_set(&err, ENOENT, "no agent \"%.64s\" has joined", q->agent);
    reply_error(reply, -ENOENT, &err);
    return 1;
}

static int do_roster(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct roster *r = s->roster;
    if (check_agent(s, q, reply))
        return 0;
    if (r->epoch <= q->after)
        return q->last ? reply_empty(reply) : 1;
    struct roster_body body = {.epoch = r->epoch, .n = r->size};
    memcpy(body.key, r->key, sizeof(body.key));
    body.cards = calloc((size_t)r->size, sizeof(*body.cards));
    for (int i = 0; body.cards && i < r->size; i++) {
        struct roster_agent *a = &r->agents[r->ranks[i].agent];
        body.cards[i].rank = body.cards[i].member = i;
        memcpy(body.cards[i].agent, a->uid, sizeof(a->uid));
        memcpy(body.cards[i].host, a->host, sizeof(a->host));
        body.cards[i].bytes = r->ranks[i].card; /* lent */
    }
    reply_text(reply, body.cards ? roster_write(&body) : NULL);
    free(body.cards);
    return 0;
}

static int do_events(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct roster *r = s->roster;
    if (check_agent(s, q, reply))
        return 0;
    if ((uint64_t)r->nnotes <= q->after)
        return q->last ? reply_empty(reply) : 1;
    struct notes_body body = {
        .seq = (uint64_t)r->nnotes, .n = r->nnotes - (int)q->after, .notes = r->notes + q->after};
    return reply_text(reply, notes_write(&body));
}

static json_t *list_findings(const struct roster *r)
{
    json_t *list = json_array();
    for (int a = 0; a < r->nagents; a++) {
        for (int i = 0; i < r->agents[a].findings.n; i++) {
            const struct finding *f = &r->agents[a].findings.list[i];
            json_append(&list,
                        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "host", r->agents[a].host,
                                  "source", f->source, "id", f->id, "code", f->code, "status",
                                  finding_status_name(f->status), "summary", f->summary));
        }
    }
    return list;
}

/* For people: curl. */
static int do_status(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct roster *r = s->roster;
    auto_json json_t *ranks = json_array();
    (void)q;
    for (int i = 0; i < r->size; i++) {
        const struct roster_rank *mine = &r->ranks[i];
        uint64_t idle = mine->moved ? (clock_ns() - mine->moved) / CLOCK_MS : 0;
        json_append(&ranks, json_pack("{s:i, s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "rank", i, "host",
                                      r->agents[mine->agent].host, "state",
                                      rank_state_name(mine->state), "pid", mine->pid, "code",
                                      mine->code, "batches", (json_int_t)mine->batches, "bytes",
                                      (json_int_t)mine->bytes, "idle_ms", (json_int_t)idle));
    }
    auto_json json_t *j = json_pack("{s:s, s:i, s:I, s:i, s:O, s:o}", "job", r->job, "size",
                                    r->size, "epoch", (json_int_t)r->epoch, "ended", r->over,
                                    "ranks", ranks, "findings", list_findings(r));
    return reply_text(reply, json_write(j));
}

static const struct {
    const char *method, *path;
    int (*handle)(struct service *, const struct server_request *, struct server_reply *);
} routes[] = {
    {"POST", "/v1/join", do_join},         {"POST", "/v1/cards", do_cards},
    {"POST", "/v1/report", do_report},     {"GET", "/v1/roster", do_roster},
    {"GET", "/v1/events", do_events},      {"GET", "/v1/status", do_status},
    {"POST", "/v1/findings", do_findings},
};

int service_handle(void *arg, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(routes[i].path, q->path) == 0 && strcmp(routes[i].method, q->method) == 0)
            return routes[i].handle(arg, q, reply);
    err_set(&err, ENOENT, "no %.16s %.64s here", q->method, q->path);
    return reply_error(reply, -ENOENT, &err);
}
