/* SPDX-License-Identifier: Apache-2.0
 *
 * service: see service.h. Each handler parses a body, calls the roster and writes a response.
 */
#include "core/member/service.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "core/member/status.h"

static int reply_text(struct server_reply *reply, char *body)
{
    reply->status = body ? 200 : 503;
    reply->body = body;
    return 0;
}

/* An agent that is not known rejoins, and sends its roster only if this coordinator has none as new
 * ("have"). */
static char *unknown_body(const struct roster *r, const struct err *err)
{
    const struct roster_body *world = r->rebuilding ? &r->gathered : &r->world;
    auto_json json_t *j =
        json_pack("{s:o}", "error", json_lossy_string(err_text(err), strlen(err_text(err))));
    if (r->is_elastic && world->n > 0)
        json_put(&j, "have", json_integer((json_int_t)world->epoch));
    return json_write(j);
}

static int reply_error(const struct service *s, struct server_reply *reply, int rc,
                       const struct err *err)
{
    reply->status = rc == -ENOENT                    ? 404
                    : rc == -ENOMEM || rc == -EAGAIN ? 503
                    : rc == -EINVAL                  ? 400
                    : rc == -EPERM                   ? 403
                                                     : 409; /* -EEXIST, -ESTALE, -EPROTO */
    reply->body = rc == -ENOENT ? unknown_body(s->roster, err) : json_error_body(err_text(err));
    return 0;
}

static int reply_empty(struct server_reply *reply)
{
    reply->status = 204;
    return 0;
}

/* The response to join: the agent's members that were not started yet. NULL: out of memory. */
static char *welcome_text(const struct service *s, int agent)
{
    const struct roster *r = s->roster;
    struct welcome_body welcome = {.size = r->is_elastic ? r->elastic.max : r->size,
                                   .elastic = r->is_elastic,
                                   .slots = r->agents.list[agent].nslots,
                                   .post_output = s->adopted && s->adopted(s->arg, agent)};
    memcpy(welcome.job, r->job, sizeof(welcome.job));
    welcome.assignments = calloc((size_t)welcome.slots + 1, sizeof(*welcome.assignments));
    for (int i = 0; welcome.assignments && i < r->members.n; i++)
        if (r->members.list[i].agent == agent && r->members.list[i].state == RANK_ASSIGNED)
            welcome.assignments[welcome.nassignments++] = r->members.list[i].assignment;
    char *text = welcome.assignments ? welcome_write(&welcome) : NULL;
    welcome_fini(&welcome);
    return text;
}

/* Checks that the agent's name belongs to the peer (server_request.peer). -EPERM. */
static int check_peer(const struct server_request *q, const char *agent, struct err *err)
{
    size_t n = q->peer ? strlen(q->peer) : 0;
    if (!q->peer || (strncmp(q->peer, agent, n) == 0 && agent[n] == '.'))
        return 0;
    return err_set(err, EPERM, "agent \"%.100s\" is none of pod %.64s", agent, q->peer);
}

static int do_join(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct join_body body = {0};
    int rc = join_read(q->body, q->len, &body, &err);
    if (rc == 0)
        rc = check_peer(q, body.agent, &err);
    if (rc == 0 && s->arrive)
        rc = s->arrive(s->arg, &body, &err);
    if (rc == 0)
        rc = roster_join(s->roster, &body, clock_ns(), &err);
    join_fini(&body);
    if (rc < 0)
        return reply_error(s, reply, rc, &err);
    reply_text(reply, welcome_text(s, roster_find(s->roster, body.agent)));
    s->changed(s->arg);
    return 0;
}

static int do_cards(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct cards_body body;
    int rc = cards_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(s, reply, rc, &err);
    rc = check_peer(q, body.agent, &err);
    if (rc == 0)
        rc = roster_cards(s->roster, &body, clock_ns(), &err);
    cards_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(s, reply, rc, &err) : reply_empty(reply);
}

static int do_report(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct report_body body;
    int rc = report_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(s, reply, rc, &err);
    rc = check_peer(q, body.agent, &err);
    if (rc == 0)
        rc = roster_report(s->roster, &body, clock_ns(), &err);
    report_body_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(s, reply, rc, &err) : reply_empty(reply);
}

static int do_findings(struct service *s, const struct server_request *q,
                       struct server_reply *reply)
{
    struct err err = {0};
    struct findings_body body;
    int rc = findings_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(s, reply, rc, &err);
    rc = check_peer(q, body.agent, &err);
    if (rc == 0)
        rc = roster_findings(s->roster, &body, clock_ns(), &err);
    findings_body_fini(&body);
    s->changed(s->arg);
    return rc < 0 ? reply_error(s, reply, rc, &err) : reply_empty(reply);
}

/* Records that the asking agent is alive. Returns 0, or 1 when an error response was made. */
static int check_agent(struct service *s, const struct server_request *q,
                       struct server_reply *reply)
{
    struct err err = {0};
    int index = roster_find(s->roster, q->agent), rc = check_peer(q, q->agent, &err);
    if (rc < 0) {
        reply_error(s, reply, rc, &err);
        return 1;
    }
    if (index >= 0 && s->roster->agents.list[index].joined && !s->roster->agents.list[index].lost) {
        gaps_heard(&s->roster->agents.list[index].gaps, clock_ns());
        return 0;
    }
    err_set(&err, ENOENT, "no agent \"%.64s\" has joined", q->agent);
    reply_error(s, reply, -ENOENT, &err);
    return 1;
}

static int do_roster(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct roster *r = s->roster;
    if (check_agent(s, q, reply))
        return 0;
    if (r->epoch <= q->after)
        return q->last ? reply_empty(reply) : 1;
    return reply_text(reply, roster_write(&r->world));
}

static bool is_for(const struct roster *r, const struct note *n, int agent)
{
    int only = roster_note_agent(r, n);
    return only < 0 || only == agent;
}

static int do_events(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct roster *r = s->roster;
    if (check_agent(s, q, reply))
        return 0;
    int agent = roster_find(r, q->agent), more = r->notes.n - (int)q->after;
    struct notes_body body = {.seq = (uint64_t)r->notes.n};
    if (q->after > (uint64_t)r->notes.n)
        more = 0;
    body.notes = calloc((size_t)more + 1, sizeof(*body.notes));
    for (int i = r->notes.n - more; body.notes && i < r->notes.n; i++)
        if (is_for(r, &r->notes.list[i], agent))
            body.notes[body.n++] = r->notes.list[i];
    bool park = body.notes && body.n == 0;
    if (!park)
        reply_text(reply, body.notes ? notes_write(&body) : NULL);
    free(body.notes);
    if (park)
        return q->last ? reply_empty(reply) : 1;
    return 0;
}

static int do_output(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct printed_body body;
    int rc = printed_read(q->body, q->len, &body, &err);
    if (rc < 0)
        return reply_error(s, reply, rc, &err);
    int index = roster_find(s->roster, body.agent);
    bool known =
        index >= 0 && s->roster->agents.list[index].joined && !s->roster->agents.list[index].lost;
    rc = check_peer(q, body.agent, &err);
    if (rc == 0 && (!known || !s->output))
        rc = err_set(&err, ENOENT,
                     "the coordinator takes no output of agent \"%.64s\": the agent has not joined "
                     "or is lost, or the coordinator does not collect output",
                     body.agent);
    else if (rc == 0 && s->roster->rebuilding)
        rc = err_set(&err, EAGAIN, "the coordinator is still gathering the job's agents");
    else if (rc == 0)
        gaps_heard(&s->roster->agents.list[index].gaps, clock_ns());
    if (rc == 0 && s->output(s->arg, index, &body) < 0)
        rc = err_set(
            &err, EAGAIN,
            "the coordinator's output buffer is full: the agent will send this output again");
    printed_fini(&body);
    return rc < 0 ? reply_error(s, reply, rc, &err) : reply_empty(reply);
}

static int do_status(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    (void)q;
    return reply_text(reply, status_text(s->roster, clock_ns()));
}

/* The response to a planned change: an error, or its number. */
static int reply_change(struct service *s, int rc, uint32_t change, const struct err *err,
                        struct server_reply *reply)
{
    if (rc < 0) {
        reply_error(s, reply, rc == -EPERM || rc == -EAGAIN ? rc : -EINVAL, err);
        return 0;
    }
    if (s->keep)
        s->keep(s->arg);
    auto_json json_t *j =
        json_pack("{s:I, s:i}", "change", (json_int_t)change, "np", s->roster->target);
    reply_text(reply, json_write(j));
    s->changed(s->arg);
    return 0;
}

static int do_scale(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct scale_body body;
    uint32_t change = 0;
    int rc = scale_read(q->body, q->len, &body, &err);
    if (rc == 0 && q->peer)
        rc = err_set(&err, EPERM, "a pod cannot scale its job: kubectl scale can");
    if (rc == 0)
        rc = roster_scale(s->roster, body.np, clock_ns(), &change, &err);
    return reply_change(s, rc, change, &err, reply);
}

/* A peer may drain only its own host. */
static int check_drain(struct service *s, const struct server_request *q,
                       const struct drain_body *body, struct err *err)
{
    bool there = false;
    for (int a = 0; q->peer && a < s->roster->agents.n; a++) {
        const struct roster_agent *agent = &s->roster->agents.list[a];
        bool mine = check_peer(q, agent->uid, NULL) == 0 && agent->joined && !agent->lost;
        if (mine && !s->roster->rebuilding && strcmp(agent->host, body->host) == 0)
            return 0;
        there |= mine;
    }
    if (!q->peer)
        return 0;
    return there && !s->roster->rebuilding
               ? err_set(err, EPERM, "no host \"%.100s\" of pod %.64s", body->host, q->peer)
               : err_set(err, EAGAIN, "no agent of pod %.64s has joined", q->peer);
}

static int do_drain(struct service *s, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    struct drain_body body;
    uint32_t change = 0;
    int rc = drain_read(q->body, q->len, &body, &err);
    if (rc == 0)
        rc = check_drain(s, q, &body, &err);
    if (rc == 0)
        rc = body.host[0] ? roster_drain_host(s->roster, body.host, clock_ns(), &change, &err)
                          : roster_drain_rank(s->roster, body.rank, clock_ns(), &change, &err);
    return reply_change(s, rc, change, &err, reply);
}

static const struct {
    const char *method, *path;
    int (*handle)(struct service *, const struct server_request *, struct server_reply *);
} routes[] = {
    {"POST", "/v1/join", do_join},         {"POST", "/v1/cards", do_cards},
    {"POST", "/v1/report", do_report},     {"GET", "/v1/roster", do_roster},
    {"GET", "/v1/events", do_events},      {"GET", "/v1/status", do_status},
    {"POST", "/v1/findings", do_findings}, {"POST", "/v1/scale", do_scale},
    {"POST", "/v1/drain", do_drain},       {"POST", "/v1/output", do_output},
};

int service_handle(void *arg, const struct server_request *q, struct server_reply *reply)
{
    struct err err = {0};
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(routes[i].path, q->path) == 0 && strcmp(routes[i].method, q->method) == 0)
            return routes[i].handle(arg, q, reply);
    err_set(&err, ENOENT, "no %.16s %.64s here", q->method, q->path);
    return reply_error(arg, reply, -ENOENT, &err);
}
