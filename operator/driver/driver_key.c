/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_key: creates the Secret with a job's key, for operators that may not have tokens reviewed
 * (one namespace). The Secret is never read: its name contains the job's uid, so an existing one
 * is this job's. The job owns it, so it is deleted with the job.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/api/request.h"
#include "operator/api/retry.h"
#include "operator/driver/bodies.h"
#include "operator/driver/driver_private.h"

#define TIMEOUT_MS 15000

static void on_made(void *arg, const struct api_answer *answer)
{
    struct entry *e = arg;
    struct driver *d = e->owner;
    e->key_call = NULL;
    bool there = answer->status == 201 || strcmp(answer->reason, "AlreadyExists") == 0;
    if (there && e->job)
        memcpy(e->key_made, e->job->job.uid, sizeof(e->key_made));
    if (!there) {
        if (retry_is_refusal(answer->status))
            entry_note_problem(e, answer->message, false);
        e->failures++;
        e->not_before = clock_ns() + retry_backoff_ms(e->failures, randombytes_random()) * CLOCK_MS;
    }
    driver_enqueue(d, e);
}

bool driver_has_key(struct driver *d, struct entry *e)
{
    static const struct resource secrets = {"", "v1", "secrets"};
    const struct hvdjob *job = &e->job->job;
    struct buf path = {0};
    if (!d->handlers.key || strcmp(e->key_made, job->uid) == 0)
        return true;
    if (e->key_call || !d->leading || !d->config.may_write(d->config.arg))
        return false;
    auto_free char *body = bodies_key(job, d->handlers.key(d->handlers.arg, job->uid));
    request_path(&path, &secrets, job->namespace_, NULL, NULL);
    struct api_request q = {.method = "POST",
                            .path = request_text(&path),
                            .body = body,
                            .idempotent = true,
                            .timeout_ms = TIMEOUT_MS};
    if (!body || !q.path || api_send(d->config.api, &q, on_made, e, &e->key_call, NULL) < 0)
        driver_enqueue_at(d, e, clock_ns() + CLOCK_S);
    if (body)
        sodium_memzero(body, strlen(body));
    buf_fini(&path);
    return false;
}
