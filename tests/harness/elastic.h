/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic: a small agent and coordinator in one, for tests of the engine's repair. It forks ranks,
 * answers their HELLO, reports deaths and publishes epochs, driven by the parent's thread. The real
 * ones are in agent/; this one lets a test decide when each event happens.
 */
#ifndef HVD_TESTS_HARNESS_ELASTIC_H
#define HVD_TESTS_HARNESS_ELASTIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/ctl.h"

#define ELASTIC_MAX 64 /* the most members that a job may have in its life */

/* A member's program. Returns its exit code. */
typedef int (*elastic_rank_f)(int member, void *arg);

struct elastic_member {
    pid_t pid;
    int fd;
    struct ctl ctl;
    bool waiting; /* has sent HELLO and has no roster yet */
    bool arrived; /* has provisional numbers and is not ready for admission */
    bool was_in;
    int bye; /* code of its BYE; 1: no BYE received */
    int why;
    struct buf card;
    bool active;     /* is in the newest epoch */
    bool over, left; /* over: its process has ended; left: it has sent BYE */
    bool leaving;    /* is asked to leave at the next boundary */
    bool given_up;   /* the other members were told that it is lost, though it is alive */
    int rank, status;
    int place;        /* its place in the newest epoch in which it was */
    uint64_t batches; /* finished batches, as last reported */
    struct buf sets;  /* body of its last frame SETS */
};

struct elastic {
    struct elastic_member members[ELASTIC_MAX];
    int n;
    uint32_t epoch, change;
    bool changing;          /* a change is announced and not applied */
    int publishes;          /* epochs published so far, including failed ones */
    uint64_t repairs;       /* REPAIRED frames */
    uint64_t slowest;       /* the longest repair time in these frames, ns */
    uint64_t departed_done; /* the largest number of finished operations in any BYE */
    bool late_deaths;       /* deaths are reported only after the next epoch was published */
    bool numbers;           /* joiners get provisional numbers at once, as from a real agent */
    bool keep_places;       /* a joiner takes the lowest free place; else joiners come last */
    uint8_t key[32];
};

void elastic_init(struct elastic *job);

/* Forks a member that runs fn with the variables env ("NAME=value", NULL at the end; may be NULL).
 * Returns its number, -1 on failure. */
int elastic_add(struct elastic *job, elastic_rank_f fn, void *arg, const char *const *env);

/* Announces a planned change: at the next boundary joiners are admitted and members marked
 * `leaving` leave. On return the members have read it, unless one does not read for 2 s. */
void elastic_announce(struct elastic *job);

/* Tells the other members that this member is lost, although it is alive. */
void elastic_give_up(struct elastic *job, int member);

/* Tells a member that is in no world to leave. */
void elastic_dismiss(struct elastic *job, int member, const char *text);

/* Works until done() returns true. Returns false when ms have passed first. */
bool elastic_run(struct elastic *job, bool (*done)(struct elastic *job, void *arg), void *arg,
                 int ms);

/* Works until *at, where a member stores its step, is step or more. Returns like elastic_run(). */
bool elastic_run_to(struct elastic *job, const _Atomic int *at, int step, int ms);

/* For elastic_run(): true when all members have ended. */
bool elastic_all_over(struct elastic *job, void *arg);

/* For elastic_run(): true when all members from number *(int *)arg on wait for a world. */
bool elastic_joiners_wait(struct elastic *job, void *arg);

/* The members that have ended with exit code 0, a bit for each of the first 32. */
uint32_t elastic_survivors(const struct elastic *job);

/* Kills live members and closes everything. */
void elastic_fini(struct elastic *job);

#endif
