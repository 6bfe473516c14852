/* SPDX-License-Identifier: Apache-2.0
 *
 * deaths: an elastic world of four members that do steps, of whom two are killed, one after the
 * other. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_DEATHS_H
#define HVD_TESTS_HARNESS_DEATHS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tests/harness/elastic.h"

#define DEATHS_STEPS   40
#define DEATHS_MEMBERS 4 /* 1 and 3 are killed */

/* In shared memory (world_shared). */
struct deaths {
    int (*step)(int member, int step,
                void *arg); /* one operation; else what the member exits with */
    void *arg;
    int gap;                     /* steps from the first death to the second */
    int within_us;               /* of its step, a death */
    _Atomic int at[ELASTIC_MAX]; /* the step each member is in */
};

/* A boundary every five steps; where the deaths come depends on seed. False: no end in two minutes.
 */
bool deaths_run(struct elastic *job, struct deaths *d, unsigned seed);

#endif
