/* SPDX-License-Identifier: Apache-2.0
 *
 * review: asks the API server to which pod a service account token is bound (TokenReview). Created
 * by coordination.c, which passes reviewer_ask() to the plane. On the api's loop, one thread.
 * Needs the right to create tokenreviews.authentication.k8s.io, which only the cluster-wide
 * installation has.
 */
#ifndef HVD_OPERATOR_COORDINATOR_REVIEW_H
#define HVD_OPERATOR_COORDINATOR_REVIEW_H

#include "operator/api/api.h"
#include "operator/coordinator/plane.h"

struct reviewer;

int reviewer_open(struct reviewer **ret, struct api *api, struct err *err);

/* Sets the plane that gets the results. Call it before the first review. */
void reviewer_serve(struct reviewer *r, struct plane *plane);

/* plane_config.review; arg is the reviewer. */
void reviewer_ask(void *arg, uint64_t id, const char *token);

/* Call it before the plane and the api are closed. NULL is fine. */
void reviewer_close(struct reviewer *r);

/* The body of a TokenReview; the caller frees it. NULL: no memory, or the token is not UTF-8. */
char *review_write(const char *token);

/* Parses the response. -EINVAL: no TokenReview; ret is untouched then. */
int review_read(const char *text, size_t len, struct plane_review *ret, struct err *err);

#endif
