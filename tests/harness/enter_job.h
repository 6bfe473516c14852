/* SPDX-License-Identifier: Apache-2.0
 *
 * enter_job: a job of ranks that train until they are told to stop, for tests of a rank that joins
 * them: what they share, and what a joiner does when it is in.
 */
#ifndef HVD_TESTS_HARNESS_ENTER_JOB_H
#define HVD_TESTS_HARNESS_ENTER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/elastic.h"

#define ENTER_OLD   2     /* members that train from the beginning */
#define ENTER_LIMIT 60000 /* ms that a test waits for anything */

/* By which call a joiner comes in. */
enum enter_how { BY_ENTER, BY_SUBMIT, BY_ALLREDUCE, BY_BROADCAST, BY_BARRIER, BY_COMMIT, HOWS };

/* What the members share. */
struct enter_board {
    _Atomic int at; /* the step in which member 0 is */
    _Atomic int stop;
    _Atomic int said[ELASTIC_MAX]; /* the joiner has come to where the test waits for it */
    enum enter_how how;
    int hello_at, entered_at;
    uint64_t longest; /* ns between two steps of member 0 */
};

extern struct enter_board *enter_board;

/* ---- the test; assertions of cmocka's ---- */

/* A job of ENTER_OLD members that train. */
void enter_job_begin(struct elastic *job, enum enter_how how);

/* So many steps of member 0. */
void enter_job_step(struct elastic *job, int steps);

/* For elastic_run(): the member (*(int *)arg) waits to be let in, or is over. */
bool enter_job_waits(struct elastic *job, void *arg);

/* All end well but those of mask. */
void enter_job_end(struct elastic *job, unsigned mask);

/* ---- a joiner; an exit code ---- */

/* Prints what hvd.h says. */
int enter_job_wrong(int member, const char *what);

/* Comes in, takes the others' state over, trains with them. */
int enter_job_go_on(int member);

/* The parts of that: the step from one who has it; steps until all have seen that it is to stop. */
int enter_job_share(int64_t *step);
int enter_job_train(int member, int64_t step);

/* A thread that calls hvd_enter(); arg: the int for what it returns. */
void *enter_job_enter(void *arg);

#endif
