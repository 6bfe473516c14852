/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_message: see plane_message.h.
 */
#include "operator/link/plane_message.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"

int plane_copy_text(const char *what, const char *text, char *dst, size_t size, struct err *err)
{
    size_t n = strlen(text);
    if (n >= size)
        return err_set(err, EINVAL, "%s: a text of %zu bytes, at most %zu", what, n, size - 1);
    memcpy(dst, text, n + 1);
    return 0;
}

/* ---- config ---------------------------------------------------------------------------------- */

json_t *plane_write_config(const struct plane_start *config)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:b}", "type", "config", "certificate",
                     config->cert_pem, "key", config->key_pem, "term", (json_int_t)config->term,
                     "gatherMs", config->gather_ms, "reviews", config->reviews);
}

int plane_read_config(json_t *message, struct plane_start *ret, struct err *err)
{
    struct plane_start c = {0};
    const char *type;
    json_int_t term = 0;
    int reviews = 0;
    int rc = json_expect(message, "config", err, "{s:s, s:s, s:s, s:I, s:i, s:b !}", "type", &type,
                         "certificate", &c.cert_pem, "key", &c.key_pem, "term", &term, "gatherMs",
                         &c.gather_ms, "reviews", &reviews);
    if (rc < 0)
        return rc;
    if (term < 0 || c.gather_ms < 0)
        return err_set(err, EINVAL, "config: a negative number");
    c.term = term;
    c.reviews = reviews;
    *ret = c;
    return 0;
}

json_t *plane_write_renew(const char *cert_pem, const char *key_pem)
{
    return json_pack("{s:s, s:s, s:s}", "type", "renew", "certificate", cert_pem, "key", key_pem);
}

int plane_read_renew(json_t *message, const char **ret_cert_pem, const char **ret_key_pem,
                     struct err *err)
{
    const char *type;
    return json_expect(message, "renew", err, "{s:s, s:s, s:s !}", "type", &type, "certificate",
                       ret_cert_pem, "key", ret_key_pem);
}

/* ---- jobs and pods --------------------------------------------------------------------------- */

json_t *plane_write_job(const struct plane_job *job)
{
    char hash[2 * PLANE_HASH_SIZE + 1];
    sodium_bin2hex(hash, sizeof(hash), job->key_hash, sizeof(job->key_hash));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:i, s:b}", "type", "job",
                     "uid", job->uid, "namespace", job->namespace_, "name", job->name, "keyHash",
                     hash, "workers", job->workers, "min", job->min, "max", job->max, "slots",
                     job->slots, "keepPlaces", job->keep_places, "startTimeout", job->start_timeout,
                     "began", job->began);
}

int plane_read_job(json_t *message, struct plane_job *ret, struct err *err)
{
    struct plane_job job = {0};
    const char *type, *hash;
    int began, places;
    size_t n = 0;
    int rc = json_expect(
        message, "job", err, "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:i, s:b !}",
        "type", &type, "uid", &job.uid, "namespace", &job.namespace_, "name", &job.name, "keyHash",
        &hash, "workers", &job.workers, "min", &job.min, "max", &job.max, "slots", &job.slots,
        "keepPlaces", &places, "startTimeout", &job.start_timeout, "began", &began);
    if (rc < 0)
        return rc;
    if (sodium_hex2bin(job.key_hash, sizeof(job.key_hash), hash, strlen(hash), NULL, &n, NULL) !=
            0 ||
        n != sizeof(job.key_hash))
        return err_set(err, EINVAL, "job: keyHash is no SHA-256");
    job.keep_places = places;
    job.began = began;
    *ret = job;
    return 0;
}

json_t *plane_write_pod(const char *job_uid, const struct plane_pod *pod)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b}", "type", "pod", "job", job_uid,
                     "uid", pod->uid, "name", pod->name, "worker", pod->worker, "attempt",
                     pod->attempt, "bound", pod->bound, "deleting", pod->deleting, "finished",
                     pod->finished);
}

int plane_read_pod(json_t *message, const char **ret_job_uid, struct plane_pod *ret,
                   struct err *err)
{
    struct plane_pod pod = {0};
    const char *type, *job;
    int bound, deleting, finished;
    int rc = json_expect(message, "pod", err, "{s:s, s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b !}",
                         "type", &type, "job", &job, "uid", &pod.uid, "name", &pod.name, "worker",
                         &pod.worker, "attempt", &pod.attempt, "bound", &bound, "deleting",
                         &deleting, "finished", &finished);
    if (rc < 0)
        return rc;
    pod.bound = bound;
    pod.deleting = deleting;
    pod.finished = finished;
    *ret_job_uid = job;
    *ret = pod;
    return 0;
}

/* ---- token reviews --------------------------------------------------------------------------- */

json_t *plane_write_reviewed(uint64_t id, const struct plane_review *review)
{
    return json_pack("{s:s, s:I, s:b, s:b, s:s}", "type", "reviewed", "id", (json_int_t)id, "known",
                     review->known, "failed", review->failed, "pod", review->pod_uid);
}

int plane_read_reviewed(json_t *message, uint64_t *ret_id, struct plane_review *ret,
                        struct err *err)
{
    struct plane_review review = {0};
    const char *type, *pod;
    json_int_t id;
    int known, failed;
    int rc = json_expect(message, "reviewed", err, "{s:s, s:I, s:b, s:b, s:s !}", "type", &type,
                         "id", &id, "known", &known, "failed", &failed, "pod", &pod);
    rc =
        rc < 0 ? rc : plane_copy_text("reviewed", pod, review.pod_uid, sizeof(review.pod_uid), err);
    if (rc < 0)
        return rc;
    review.known = known;
    review.failed = failed;
    *ret_id = (uint64_t)id;
    *ret = review;
    return 0;
}
