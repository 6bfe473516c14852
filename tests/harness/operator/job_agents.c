/* SPDX-License-Identifier: Apache-2.0
 *
 * job_agents: see job_agents.h.
 */
#include "tests/harness/operator/job_agents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"

static uint64_t seq;
static struct gather gather = {.base_ms = GATHER_MS};

static void on_changed(void *arg, struct job_coordinator *job)
{
    (void)arg, (void)job;
}

struct plane_job job_agents_job(int workers, int min, int max)
{
    return (struct plane_job){.uid = "job",
                              .namespace_ = "default",
                              .name = "job",
                              .workers = workers,
                              .min = min,
                              .max = max,
                              .slots = 1};
}

struct plane_pod job_agents_pod(int i, bool deleting, bool finished)
{
    static char uid[8][16], name[8][32];
    snprintf(uid[i], sizeof(uid[i]), "p%d", i);
    snprintf(name[i], sizeof(name[i]), "job-%d-0", i);
    return (struct plane_pod){.uid = uid[i],
                              .name = name[i],
                              .worker = i,
                              .bound = true,
                              .deleting = deleting,
                              .finished = finished};
}

int job_agents_post(struct job_coordinator *c, int pod, const char *path, char *body,
                    char **ret_text)
{
    char peer[16];
    struct server_reply reply = {0};
    struct server_request q = {.method = "POST",
                               .path = path,
                               .agent = "",
                               .body = body,
                               .len = strlen(body),
                               .peer = peer};
    snprintf(peer, sizeof(peer), "p%d", pod);
    assert_int_equal(service_handle(&c->service, &q, &reply), 0);
    free(body);
    if (ret_text)
        *ret_text = reply.body;
    else
        free(reply.body);
    return reply.status;
}

int job_agents_join(struct job_coordinator *c, int pod)
{
    struct join_body body = {.slots = 1, .pid = 1};
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    snprintf(body.host, sizeof(body.host), "h");
    int status = job_agents_post(c, pod, "/v1/join", join_write(&body), NULL);
    job_coordinator_tick(c, false, clock_ns());
    return status;
}

/* The first member of the pod's agent. */
static int member_of(const struct roster *r, int pod)
{
    char agent[16];
    snprintf(agent, sizeof(agent), "p%d.x", pod);
    for (int i = 0; i < r->members.n; i++)
        if (strcmp(r->agents.list[r->members.list[i].agent].uid, agent) == 0)
            return i;
    fail_msg("agent %s has no member", agent);
    return -1;
}

static void report(struct job_coordinator *c, int pod, struct report_item item)
{
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    item.member = member_of(&c->roster, pod);
    item.pid = 5;
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    assert_int_equal(job_agents_post(c, pod, "/v1/report", report_write(&body), NULL), 204);
}

void job_agents_started(struct job_coordinator *c, int pod)
{
    report(c, pod, (struct report_item){.type = REPORT_STARTED});
}

void job_agents_repaired(struct job_coordinator *c, int pod, uint64_t ns)
{
    report(c, pod,
           (struct report_item){.type = REPORT_REPAIRED, .epoch = c->roster.epoch, .ns = ns});
}

void job_agents_card(struct job_coordinator *c, int pod, enum card_why why)
{
    struct roster *r = &c->roster;
    struct card one = {.member = member_of(r, pod), .why = why, .epoch = r->epoch};
    struct cards_body body = {.seq = ++seq, .epoch = r->epoch + 1, .n = 1, .cards = &one};
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    buf_put_u32(&one.bytes, (uint32_t)one.member);
    assert_int_equal(job_agents_post(c, pod, "/v1/cards", cards_write(&body), NULL), 204);
    buf_fini(&one.bytes);
}

struct job_coordinator *job_agents_make(int workers, int min, int max)
{
    struct job_coordinator *c;
    struct plane_job job = job_agents_job(workers, min, max);
    seq = 0;
    assert_int_equal(
        job_coordinator_create(&c, &job, JOB_AGENTS_TERM, &gather, on_changed, NULL, NULL), 0);
    for (int i = 0; i < workers; i++) {
        struct plane_pod pod = job_agents_pod(i, false, false);
        assert_int_equal(job_coordinator_pod(c, &pod, NULL), 0);
    }
    job_coordinator_tick(c, false, clock_ns());
    return c;
}

struct job_coordinator *job_agents_train(int workers, int min, int max)
{
    struct job_coordinator *c = job_agents_make(workers, min, max);
    for (int i = 0; i < workers; i++)
        assert_int_equal(job_agents_join(c, i), 200);
    for (int i = 0; i < workers; i++) {
        job_agents_started(c, i);
        job_agents_card(c, i, CARD_JOIN);
    }
    assert_int_equal(roster_epoch_number(c->roster.epoch), 1);
    assert_int_equal(c->roster.epoch >> ROSTER_TERM_SHIFT, JOB_AGENTS_TERM);
    assert_int_equal(c->roster.size, workers);
    return c;
}
