/* SPDX-License-Identifier: Apache-2.0
 *
 * retry: decides whether and when a failed request is retried. Pure. Called by api.c; informer.c
 * and others use only its backoff.
 */
#ifndef HVD_OPERATOR_API_RETRY_H
#define HVD_OPERATOR_API_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS   60000

/* The result of one attempt. */
struct retry_outcome {
    long status;        /* HTTP status; 0: no response */
    bool unreached;     /* no byte of the request was sent: safe to repeat */
    long retry_after_s; /* Retry-After, -1: none */
};

/* The pause after so many failures in a row (>= 1): 5 ms, doubled each time, at most a minute,
 * minus a random part of up to one half, so that many clients do not return together. */
uint64_t retry_backoff_ms(unsigned failures, uint32_t random);

/* True: retry after *ret_ms. A request that is not idempotent is retried only if the server cannot
 * have executed it: it was not sent, or the response was 429. */
bool retry_again(const struct retry_outcome *outcome, bool idempotent, unsigned failures,
                 uint32_t random, uint64_t *ret_ms);

/* Does the server refuse the object itself, so that its message is worth showing in the job's
 * status? Not: missing credentials (401), time-outs, conflicts and throttling. */
static inline bool retry_is_refusal(long status)
{
    return status >= 400 && status < 500 && status != 401 && status != 408 && status != 409 &&
           status != 429;
}

#endif
