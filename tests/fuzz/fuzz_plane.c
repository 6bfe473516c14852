/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_plane: what an agent in a pod sends to an operator: the first line is the path with its
 * query, the rest a body. An input of one line is read as the API server's answer about a token and
 * as the operator's Secret. The job's roster must stay consistent, and no agent may act for another
 * pod.
 */
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/json/json.h"
#include "operator/coordinator/plane_private.h"
#include "operator/keys.h"
#include "operator/review.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_changed(void *arg, struct job_coordinator *job)
{
    (void)arg, (void)job;
}

static struct gather gather = {.base_ms = GATHER_MS};

/* A job begins, or is gathered; LATE: was gathered without the agent p0.1, which is in its world.
 */
enum stage { NEW, GATHERING, LATE };

static struct job_coordinator *make_job(bool began)
{
    struct job_coordinator *c;
    struct plane_job job = {.uid = "job",
                            .namespace_ = "default",
                            .name = "job",
                            .workers = 2,
                            .min = 1,
                            .max = 4,
                            .slots = 2,
                            .began = began};
    struct plane_pod pods[] = {{.uid = "p0", .name = "job-0", .bound = true},
                               {.uid = "p1", .name = "job-1", .worker = 1, .bound = !began}};
    if (job_coordinator_create(&c, &job, 3, &gather, on_changed, NULL, NULL) < 0 ||
        job_coordinator_pod(c, &pods[0], NULL) < 0 || job_coordinator_pod(c, &pods[1], NULL) < 0)
        abort();
    job_coordinator_tick(c, false, 1);
    return c;
}

/* The agent of the other pod has come back in time. */
static void come_back(struct job_coordinator *c)
{
    struct card cards[] = {{.agent = "p0.1", .host = "job-0"},
                           {.member = 1, .rank = 1, .place = 1, .agent = "p1.1", .host = "job-1"}};
    struct rejoin_member own = {
        .member = 1, .pid = 2, .epoch = 2u << ROSTER_TERM_SHIFT | 1, .hello = true};
    struct rejoin told = {.n = 1, .members = &own, .known = 2};
    struct join_body join = {.agent = "p1.1", .host = "h", .pid = 1, .rejoin = &told};
    struct server_reply reply = {0};
    told.world = (struct roster_body){.epoch = own.epoch, .n = 2, .cards = cards};
    auto_free char *text = join_write(&join);
    struct server_request q = {.method = "POST",
                               .path = "/v1/join",
                               .body = text,
                               .len = text ? strlen(text) : 0,
                               .peer = "p1"};
    if (!text || service_handle(&c->service, &q, &reply) != 0 || reply.status != 200)
        abort();
    free(reply.body);
    gather.last = 0;
    job_coordinator_tick(c, false, clock_ns() + 30 * CLOCK_S);
    if (c->roster.rebuilding || !c->roster.agents.list[1].away)
        abort();
}

static void ask(const char *method, const char *path, const char *body, size_t len,
                enum stage stage)
{
    struct plane_path parts;
    if (plane_path(path, &parts) < 0)
        return;
    struct job_coordinator *c = make_job(stage != NEW);
    if (stage == LATE)
        come_back(c);
    struct server_reply reply = {0};
    struct server_request q = {.method = method,
                               .path = parts.rest,
                               .agent = "p0.1",
                               .body = body,
                               .len = len,
                               .last = true,
                               .peer = parts.pod};
    if (service_handle(&c->service, &q, &reply) == 0 && reply.status == 200 && len > 0 &&
        strcmp(parts.pod, "p0") != 0 && strcmp(parts.pod, "p1") != 0 &&
        strcmp(parts.rest, "/v1/status") != 0)
        abort();
    free(reply.body);
    for (uint64_t s = 0; s < 120; s += 30)
        job_coordinator_tick(c, false, clock_ns() + s * CLOCK_S);
    struct plane_facts facts;
    job_coordinator_facts(c, &facts);
    job_coordinator_end(c, 5);
    job_coordinator_destroy(c);
}

static void secret(const char *text, size_t len)
{
    auto_json json_t *j = NULL;
    struct keys keys;
    struct err err = {0};
    if (json_read(text, len, "secret", &j, NULL) < 0 || !json_is_object(j))
        return;
    if (keys_unpack(j, &keys, &err) == 0)
        keys_fini(&keys);
    else if (!err.msg[0])
        abort();
}

static void review(const char *text, size_t len)
{
    struct plane_review r;
    struct err err = {0};
    if (review_read(text, len, &r, &err) < 0 ? !err.msg[0]
                                             : !memchr(r.pod_uid, '\0', sizeof(r.pod_uid)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready && sodium_init() < 0)
        abort();
    ready = true;
    auto_free char *text = calloc(1, size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    char *body = strchr(text, '\n');
    if (!body) {
        review(text, size);
        secret(text, size);
        return 0;
    }
    *body++ = '\0';
    size_t len = size - (size_t)(body - text);
    ask("POST", text, body, len, NEW);
    ask("POST", text, body, len, GATHERING);
    ask("POST", text, body, len, LATE);
    ask("GET", text, "", 0, NEW);
    return 0;
}
