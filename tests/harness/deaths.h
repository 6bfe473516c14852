/* SPDX-License-Identifier: Apache-2.0
 *
 * deaths: an elastic world of four members that run steps; two of them are killed, one after the
 * other. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_DEATHS_H
#define HVD_TESTS_HARNESS_DEATHS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tests/harness/elastic.h"

#define DEATHS_STEPS   40
#define DEATHS_MEMBERS 4 /* 1 and 3 are killed */

/* Must be in shared memory (world_shared). */
struct deaths {
    int (*step)(int member, int step,
                void *arg); /* runs one operation; returns 0, or the member's exit code */
    void *arg;
    const char *hosts;           /* a character for each member, its host; NULL: one host */
    int gap;                     /* number of steps between the two deaths */
    int within_us;               /* a death comes within so many us of its step */
    _Atomic int at[ELASTIC_MAX]; /* the step each member is in */
};

/* The hosts of four members, as a variable of the environment for each: one host, a host each, two
 * hosts. */
enum { DEATHS_PLACES = 3 };
extern const char *const deaths_places[DEATHS_PLACES][DEATHS_MEMBERS];

/* Sets killed[member], which other members may look at, and kills the member. */
void deaths_kill(struct elastic *job, _Atomic bool *killed, int member);

/* Kills the member less than 8 ms after *at is step or more. Fails the test (cmocka) if that takes
 * more than ms. what: the job, for the message. */
void deaths_kill_at(struct elastic *job, int member, const _Atomic int *at, int step, int ms,
                    uint64_t *random, const char *what);

/* Runs the job, with a boundary every five steps. seed decides when the deaths come. False: it did
 * not end within two minutes. */
bool deaths_run(struct elastic *job, struct deaths *d, unsigned seed);

/* Works until all members have ended, a minute at most. Fails the test (cmocka) unless exactly
 * these members, a bit for each, have ended with exit code 0. what: the job, for the messages. */
void deaths_expect_end(struct elastic *job, uint32_t left, const char *what);

/* Runs a job for each seed from 1 to `seeds`. Fails the test (cmocka) if one does not end in time,
 * or a surviving member does not exit with 0. */
void deaths_run_all(struct deaths *d, unsigned seeds);

#endif
