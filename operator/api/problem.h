/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: why the last request for one thing failed. Owned by what sends the requests (informer,
 * election, discovery); health.c reads it. One thread.
 */
#ifndef HVD_OPERATOR_API_PROBLEM_H
#define HVD_OPERATOR_API_PROBLEM_H

#include "operator/api/api.h"

/* All zero: no problem. */
struct problem {
    long status;    /* HTTP status; 0: no response */
    char text[512]; /* "403 ... is forbidden: ...", or why there is no response; "": no problem */
};

/* err: the error in the response's content; code 0: the response itself is the problem. */
void problem_note(struct problem *p, const struct api_answer *answer, const struct err *err);

#endif
