/* SPDX-License-Identifier: Apache-2.0
 *
 * review: asks the API server to which pod a service account token is bound (TokenReview), for the
 * plane. Used by coordination.c, on the api's loop, one thread. Needs the right to create
 * tokenreviews.authentication.k8s.io, which only the cluster-wide installation has.
 */
#ifndef HVD_OPERATOR_REVIEW_H
#define HVD_OPERATOR_REVIEW_H

#include "operator/api/api.h"
#include "operator/link/plane_types.h"

#define REVIEWS_MAX 256 /* in flight */

struct reviewer;

/* done() gets each result, with the id of reviewer_ask(); it may be called from within it. */
int reviewer_open(struct reviewer **ret, struct api *api,
                  void (*done)(void *arg, uint64_t id, const struct plane_review *review),
                  void *arg, struct err *err);

/* With REVIEWS_MAX reviews in flight the result is `failed`, and the plane asks again later. */
void reviewer_ask(struct reviewer *r, uint64_t id, const char *token);

/* Drops reviews in flight. Call it before the api is closed. NULL is fine. */
void reviewer_close(struct reviewer *r);

/* The body of a TokenReview; the caller frees it. NULL: no memory, or the token is not UTF-8. */
char *review_write(const char *token);

/* Parses the response. -EINVAL: no TokenReview; ret is untouched then. */
int review_read(const char *text, size_t len, struct plane_review *ret, struct err *err);

#endif
