/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_requests: authenticates requests and routes them to their job. See plane.h.
 *
 * The plane knows only the hash of each job's key, so it cannot make one. A service account token
 * is reviewed only for an existing pod, one review per pod at a time, so that outsiders cannot make
 * the operator flood the API server.
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "operator/coordinator/plane_private.h"

#define TOKEN_MAX  8192
#define GOOD_FOR   (10 * 60 * CLOCK_S)   /* then the token is reviewed again in the background */
#define BAD_FOR    (10 * CLOCK_S)        /* a refused token is not reviewed again before */
#define ASKED_FOR  (15 * CLOCK_S)        /* then a review without a response is repeated */
#define KEEP_AFTER (24 * 3600 * CLOCK_S) /* limit of a good result if the API server is away */

/* Copies up to the next slash and returns the rest. NULL: empty, or it does not fit. */
static const char *take_part(const char *from, char dst[PLANE_UID_MAX])
{
    size_t n = strcspn(from, "/");
    if (n == 0 || n >= PLANE_UID_MAX)
        return NULL;
    memcpy(dst, from, n);
    dst[n] = '\0';
    return from + n;
}

static const char *skip(const char *from, const char *word)
{
    size_t n = strlen(word);
    return from && strncmp(from, word, n) == 0 ? from + n : NULL;
}

int plane_path(const char *path, struct plane_path *ret)
{
    const char *at = skip(path, "/jobs/");
    at = at ? take_part(at, ret->job) : NULL;
    at = skip(at, "/pods/");
    at = at ? take_part(at, ret->pod) : NULL;
    if (!at || strncmp(at, "/v1/", 4) != 0)
        return -EINVAL;
    ret->rest = at;
    return 0;
}

/* ---- keys of jobs --------------------------------------------------------------------------- */

static int check_key(const struct job_coordinator *c, const char *token, struct err *err)
{
    uint8_t hash[PLANE_HASH_SIZE];
    crypto_hash_sha256(hash, (const uint8_t *)token, strlen(token));
    return sodium_memcmp(hash, c->key_hash, sizeof(hash)) == 0
               ? 0
               : err_set(err, EACCES, "that is not the key of job %s", c->uid);
}

/* ---- service account tokens ----------------------------------------------------------------- */

static bool is_fresh(uint64_t at, uint64_t life, uint64_t now)
{
    return at && now - at < life;
}

/* Starts a review unless one is in flight. */
static void ask(struct plane *p, struct job_coordinator_token *t, const uint8_t *hash,
                const char *token, uint64_t now)
{
    if (t->id && is_fresh(t->asked_at, ASKED_FOR, now))
        return;
    memcpy(t->asked, hash, PLANE_HASH_SIZE);
    t->asked_at = now;
    t->id = ++p->reviews;
    p->counts.reviews++;
    p->config.review(p->config.arg, t->id, token);
}

static int check_account(struct plane *p, struct job_coordinator_pod *pod, const char *token,
                         struct err *err)
{
    uint8_t hash[PLANE_HASH_SIZE];
    uint64_t now = clock_ns();
    struct job_coordinator_token *t = &pod->token;
    if (!token[0] || strlen(token) > TOKEN_MAX || !p->config.review)
        return err_set(err, EACCES, "wrong or missing token");
    crypto_generichash(hash, sizeof(hash), (const uint8_t *)token, strlen(token), NULL, 0);
    bool good = memcmp(hash, t->good, sizeof(hash)) == 0;
    if (good && is_fresh(t->good_at, GOOD_FOR, now))
        return 0;
    if (memcmp(hash, t->bad, sizeof(hash)) == 0 && is_fresh(t->bad_at, BAD_FOR, now))
        return err_set(err, EACCES,
                       "the API server does not accept this token for pod %s and audience %s",
                       pod->name, PLANE_AUDIENCE);
    ask(p, t, hash, token, now);
    if (good && is_fresh(t->good_at, KEEP_AFTER, now))
        return 0;
    return err_set(err, EAGAIN, "the token of pod %s is being checked", pod->name);
}

static void settle(struct job_coordinator_pod *pod, const struct plane_review *review, uint64_t now)
{
    struct job_coordinator_token *t = &pod->token;
    bool good = review->known && strcmp(review->pod_uid, pod->uid) == 0;
    t->id = 0;
    if (review->failed)
        return;
    memcpy(good ? t->good : t->bad, t->asked, PLANE_HASH_SIZE);
    if (good)
        t->good_at = now;
    else
        t->bad_at = now;
    if (!good && memcmp(t->good, t->asked, PLANE_HASH_SIZE) == 0)
        t->good_at = 0; /* revoked or expired since it was good */
}

void plane_reviewed(struct plane *p, uint64_t id, const struct plane_review *review)
{
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        for (int i = 0; i < c->npods; i++)
            if (c->pods[i]->token.id == id)
                settle(c->pods[i], review, clock_ns());
    }
}

/* ---- hooks ---------------------------------------------------------------------------------- */

/* Before plane_synced() the job or pod may still be reported: the agent retries. */
static int unknown(struct plane *p, struct err *err, const char *what, const char *uid)
{
    if (!p->synced)
        return err_set(err, EAGAIN, "%s %s is not known yet", what, uid);
    p->counts.refused_pod++;
    return err_set(err, ENOENT, "no running %s %s", what, uid);
}

static bool has_agent(const struct job_coordinator *c, const struct job_coordinator_pod *pod)
{
    return pod->agent >= 0 && !c->roster.agents.list[pod->agent].lost;
}

static int admit(struct plane *p, const struct plane_path *path, const char *token,
                 struct server_client *ret_client, struct err *err)
{
    bool key = strncmp(token, PLANE_KEY_PREFIX, strlen(PLANE_KEY_PREFIX)) == 0;
    struct job_coordinator *c = plane_find(p, path->job);
    if (!c)
        return unknown(p, err, "job", path->job);
    int rc = key ? check_key(c, token, err) : 0;
    if (rc < 0)
        return rc;
    struct job_coordinator_pod *pod = job_coordinator_find_pod(c, path->pod);
    if (!pod || ((pod->finished || c->ended) && !has_agent(c, pod)))
        return unknown(p, err, "pod", path->pod);
    rc = key ? 0 : check_account(p, pod, token, err);
    if (rc < 0)
        return rc;
    snprintf(ret_client->pod, sizeof(ret_client->pod), "%s", pod->uid);
    snprintf(ret_client->namespace_, sizeof(ret_client->namespace_), "%.*s",
             (int)strcspn(c->roster.job, "/"), c->roster.job);
    return 0;
}

int plane_admit(void *arg, const struct server_request *q, const char *token,
                struct server_client *ret_client, struct err *err)
{
    struct plane *p = arg;
    struct plane_path path;
    if (plane_path(q->path, &path) < 0)
        return err_set(err, ENOENT, "no %.16s %.64s here: want /jobs/UID/pods/UID/v1/...",
                       q->method, q->path);
    int rc = admit(p, &path, token, ret_client, err);
    p->counts.refused_token += rc == -EACCES;
    return rc;
}

int plane_handle(void *arg, const struct server_request *q, struct server_reply *reply)
{
    struct plane *p = arg;
    struct plane_path path;
    struct server_request inner = *q;
    int rc = plane_path(q->path, &path);
    struct job_coordinator *c = rc == 0 ? plane_find(p, path.job) : NULL;
    struct job_coordinator_pod *pod = c ? job_coordinator_find_pod(c, path.pod) : NULL;
    if (!pod) { /* deleted while the body was received, or during the long poll */
        reply->status = 404;
        return 0;
    }
    job_coordinator_heard(pod);
    inner.path = path.rest;
    inner.peer = path.pod;
    rc = service_handle(&c->service, &inner, reply);
    reply->group = c->group;
    reply->who = pod->agent + 1;
    p->counts.refused_body += rc == 0 && reply->status == 400;
    return rc;
}

void plane_closed(void *arg, uint64_t group, const char *agent)
{
    struct plane *p = arg;
    list_for_each(pos, tmp, &p->jobs)
    {
        struct job_coordinator *c = list_entry(pos, struct job_coordinator, node);
        if (c->group == group)
            job_coordinator_closed(c, agent, clock_ns());
    }
}
