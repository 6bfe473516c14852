/* SPDX-License-Identifier: Apache-2.0
 *
 * retry: whether a request that failed is sent again, and when. Pure: numbers in, numbers out.
 * Called by api.c for calls, by informer.c and election.c for how long they pause.
 */
#ifndef HVD_OPERATOR_API_RETRY_H
#define HVD_OPERATOR_API_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS   60000

/* How one attempt ended. */
struct retry_outcome {
    long status;        /* HTTP's; 0: there was no answer */
    bool unreached;     /* no answer, and no byte of the request has left: safe to repeat */
    long retry_after_s; /* what the server asks for, -1: nothing */
};

/* The pause after so many failures in a row (>= 1): 5 ms, doubled each time, at most a minute, of
 * which a random half is taken off at most: many clients do not come back together. */
uint64_t retry_backoff_ms(unsigned failures, uint32_t random);

/* True: send it again after *ret_ms. A request that is not idempotent is repeated only where the
 * server cannot have done it: it never got there, or the answer was 429. */
bool retry_again(const struct retry_outcome *outcome, bool idempotent, unsigned failures,
                 uint32_t random, uint64_t *ret_ms);

#endif
