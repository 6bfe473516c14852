/* SPDX-License-Identifier: Apache-2.0
 *
 * review: see review.h.
 */
#include "operator/review.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/json/json.h"

#define PATH       "/apis/authentication.k8s.io/v1/tokenreviews"
#define POD_UID    "authentication.kubernetes.io/pod-uid"
#define TIMEOUT_MS 10000

struct reviewer {
    struct api *api;
    struct list questions;
    int asked; /* reviews in flight */
    void (*done)(void *arg, uint64_t id, const struct plane_review *review);
    void *arg;
};

struct question {
    struct reviewer *reviewer;
    uint64_t id;
    struct api_call *call;
    struct list node;
};

char *review_write(const char *token)
{
    auto_json json_t *j =
        json_pack("{s:s, s:s, s:{s:s, s:[s]}}", "apiVersion", "authentication.k8s.io/v1", "kind",
                  "TokenReview", "spec", "token", token, "audiences", PLANE_AUDIENCE);
    return json_write(j);
}

static bool has_audience(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, PLANE_AUDIENCE) == 0)
            return true;
    }
    return false;
}

int review_read(const char *text, size_t len, struct plane_review *ret, struct err *err)
{
    const char *what = "the answer to a TokenReview";
    struct plane_review review = {0};
    auto_json json_t *j = NULL;
    json_t *audiences = NULL, *user = NULL;
    int yes = 0;
    int rc = json_read(text, len, what, &j, err);
    if (rc == 0)
        rc = json_expect(j, what, err, "{s:{s?b, s?o, s?o}}", "status", "authenticated", &yes,
                         "audiences", &audiences, "user", &user);
    if (rc < 0)
        return rc;
    const char *pod = json_string_value(
        json_array_get(json_object_get(json_object_get(user, "extra"), POD_UID), 0));
    review.known = yes && has_audience(audiences);
    if (pod && strlen(pod) < sizeof(review.pod_uid))
        memcpy(review.pod_uid, pod, strlen(pod) + 1);
    *ret = review;
    return 0;
}

static void question_destroy(struct question *q)
{
    q->reviewer->asked--;
    list_remove(&q->node);
    free(q);
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    struct question *q = arg;
    struct reviewer *r = q->reviewer;
    struct plane_review review = {.failed = true};
    struct err err = {0};
    uint64_t id = q->id;
    question_destroy(q);
    if (answer->status != 200 && answer->status != 201)
        log_debug("a token could not be reviewed: HTTP %ld %.300s", answer->status,
                  answer->message);
    else if (review_read(answer->body, answer->len, &review, &err) < 0)
        log_debug("%s", err_text(&err));
    r->done(r->arg, id, &review);
}

static int send_review(struct reviewer *r, uint64_t id, const char *text, struct err *err)
{
    struct question *q = text ? calloc(1, sizeof(*q)) : NULL;
    if (!q)
        return err_set(err, ENOMEM, "no memory, or the token is not UTF-8");
    *q = (struct question){.reviewer = r, .id = id};
    list_append(&r->questions, &q->node);
    r->asked++;
    struct api_request request = {.method = "POST",
                                  .path = PATH,
                                  .body = text,
                                  .kind = API_JSON,
                                  .idempotent = true,
                                  .timeout_ms = TIMEOUT_MS};
    int rc = api_send(r->api, &request, on_answer, q, &q->call, err);
    if (rc < 0)
        question_destroy(q);
    return rc;
}

void reviewer_ask(struct reviewer *r, uint64_t id, const char *token)
{
    struct err err = {0};
    char *text = r->asked < REVIEWS_MAX ? review_write(token) : NULL;
    int rc = r->asked < REVIEWS_MAX ? send_review(r, id, text, &err)
                                    : err_set(&err, EBUSY, "too many reviews");
    if (rc < 0) {
        log_debug("a token could not be sent for review: %s", err_text(&err));
        r->done(r->arg, id, &(const struct plane_review){.failed = true});
    }
    if (text)
        sodium_memzero(text, strlen(text));
    free(text);
}

int reviewer_open(struct reviewer **ret, struct api *api,
                  void (*done)(void *arg, uint64_t id, const struct plane_review *review),
                  void *arg, struct err *err)
{
    struct reviewer *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ENOMEM, "no memory to review tokens");
    r->api = api;
    r->done = done;
    r->arg = arg;
    list_init(&r->questions);
    *ret = r;
    return 0;
}

void reviewer_close(struct reviewer *r)
{
    if (!r)
        return;
    list_for_each(pos, tmp, &r->questions)
    {
        struct question *q = list_entry(pos, struct question, node);
        api_cancel(q->call);
        question_destroy(q);
    }
    free(r);
}
