/* SPDX-License-Identifier: Apache-2.0
 *
 * enter_job: a job of ranks that train until they are told to stop, for tests of a joiner: their
 * shared memory, and what a joiner does after admission.
 */
#ifndef HVD_TESTS_HARNESS_ENTER_JOB_H
#define HVD_TESTS_HARNESS_ENTER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/elastic.h"

#define ENTER_OLD   2     /* members that train from the beginning */
#define ENTER_LIMIT 60000 /* ms that a test waits for anything */

/* The call by which a joiner asks for admission. */
enum enter_how { BY_ENTER, BY_SUBMIT, BY_ALLREDUCE, BY_BROADCAST, BY_BARRIER, BY_COMMIT, HOWS };

/* Shared by all members. */
struct enter_board {
    _Atomic int at; /* the present step of member 0 */
    _Atomic int stop;
    /* The joiner has reached the point for which the test waits. */
    _Atomic int said[ELASTIC_MAX];
    enum enter_how how;
    int hello_at, entered_at;
    uint64_t longest; /* the longest time between two steps of member 0, ns */
};

extern struct enter_board *enter_board;

/* ---- for the test; they assert ---- */

/* Starts a job of ENTER_OLD members that train. */
void enter_job_begin(struct elastic *job, enum enter_how how);

/* Works until member 0 has run so many steps. */
void enter_job_step(struct elastic *job, int steps);

/* Announces a change and works until it is published and member 0 has run 20 steps more. */
void enter_job_change(struct elastic *job);

/* For elastic_run(): true when the member (*(int *)arg) waits for admission or has ended. */
bool enter_job_waits(struct elastic *job, void *arg);

/* Ends the job; asserts that all members exit with 0, except those in mask. */
void enter_job_end(struct elastic *job, unsigned mask);

/* ---- for a joiner; they return an exit code ---- */

/* Prints hvd_error(). */
int enter_job_wrong(int member, const char *what);

/* Waits for admission, takes over the members' state, trains with them. */
int enter_job_go_on(int member);

/* Parts of enter_job_go_on(): takes the step number from a rank that has it; runs steps until all
 * ranks have seen the stop flag. */
int enter_job_share(int64_t *step);
int enter_job_train(int member, int64_t step);

/* A thread that calls hvd_enter(). arg: points to the int for its result. */
void *enter_job_enter(void *arg);

#endif
