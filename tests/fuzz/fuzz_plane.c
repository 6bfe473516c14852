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
#include "core/json/json.h"
#include "operator/coordinator/plane_private.h"
#include "operator/keys.h"
#include "operator/review.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_changed(void *arg, struct job_coordinator *job)
{
    (void)arg, (void)job;
}

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
                            .elastic = true,
                            .began = began};
    struct plane_pod pods[] = {{.uid = "p0", .name = "job-0", .bound = true},
                               {.uid = "p1", .name = "job-1", .worker = 1, .bound = !began}};
    if (job_coordinator_create(&c, &job, 3, 0, on_changed, NULL, NULL) < 0 ||
        job_coordinator_pod(c, &pods[0], NULL) < 0 || job_coordinator_pod(c, &pods[1], NULL) < 0)
        abort();
    job_coordinator_tick(c, false, 1);
    return c;
}

static void ask(const char *method, const char *path, const char *body, size_t len, bool began)
{
    struct plane_path parts;
    if (plane_path(path, &parts) < 0)
        return;
    struct job_coordinator *c = make_job(began);
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
    for (uint64_t now = 2; now < 100ULL * 1000000000; now += 30ULL * 1000000000)
        job_coordinator_tick(c, false, now);
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
    ask("POST", text, body, len, false);
    ask("POST", text, body, len, true);
    ask("GET", text, "", 0, false);
    return 0;
}
