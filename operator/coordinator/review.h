/* SPDX-License-Identifier: Apache-2.0
 *
 * review: asks the API server whom a service account token belongs to (TokenReview). Made by the
 * driver, which hands reviewer_ask() to the plane; on the api's loop, one thread. It needs the
 * right to create tokenreviews.authentication.k8s.io, which only a cluster-wide install has.
 */
#ifndef HVD_OPERATOR_COORDINATOR_REVIEW_H
#define HVD_OPERATOR_COORDINATOR_REVIEW_H

#include "operator/api/api.h"
#include "operator/coordinator/plane.h"

struct reviewer;

int reviewer_open(struct reviewer **ret, struct api *api, struct err *err);

/* Who is answered; before the first question. */
void reviewer_serve(struct reviewer *r, struct plane *plane);

/* plane_config.review; arg is the reviewer. */
void reviewer_ask(void *arg, uint64_t id, const char *token);

/* Before the plane and the api. NULL is fine. */
void reviewer_close(struct reviewer *r);

/* The question, to free(); NULL: no memory, or the token is no text. */
char *review_write(const char *token);

/* The answer. -EINVAL: it is none; ret is untouched then. */
int review_read(const char *text, size_t len, struct plane_review *ret, struct err *err);

#endif
