/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic: a small agent and coordinator in one for the tests of the engine's repair: forks ranks,
 * answers their HELLO, tells of deaths, publishes epochs. The parent's thread drives it. What is
 * real is in agent/; this one is here so that a test decides when what happens.
 */
#ifndef HVD_TESTS_HARNESS_ELASTIC_H
#define HVD_TESTS_HARNESS_ELASTIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/ctl.h"

#define ELASTIC_MAX 64 /* members of a job, from its begin to its end */

/* What a member runs; its exit code. */
typedef int (*elastic_rank_f)(int member, void *arg);

struct elastic_member {
    pid_t pid;
    int fd;
    struct ctl ctl;
    bool waiting; /* has said HELLO and has no roster yet */
    bool arrived; /* has a place, and has not said that it is ready to come in */
    bool was_in;
    int bye; /* what its BYE said, 1: it said none */
    int why;
    struct buf card;
    bool active;     /* in the epoch that was published last */
    bool over, left; /* its process has ended; it said BYE */
    bool leaving;    /* is to go at the next boundary */
    bool given_up;   /* the others are to do without it, though it lives */
    int rank, status;
    uint64_t batches; /* as it told last */
};

struct elastic {
    struct elastic_member members[ELASTIC_MAX];
    int n;
    uint32_t epoch, change;
    bool changing;      /* a change was announced and is not published */
    int publishes;      /* epochs so far, also those that did not come to be */
    uint64_t repairs;   /* REPAIRED frames */
    uint64_t slowest;   /* of them, ns */
    uint64_t left_done; /* operations that one who said BYE had finished */
    bool late_deaths;   /* deaths are told only after the next epoch was published */
    bool places;        /* who joins later is told a place at once, as a real agent does */
    uint8_t key[32];
};

void elastic_init(struct elastic *job);

/* Forks a member with these variables ("NAME=value", NULL at the end; may be NULL). */
int elastic_add(struct elastic *job, elastic_rank_f fn, void *arg, const char *const *env);

/* Announces a planned change: those who have joined since are let in at the next boundary, those
 * who are marked leaving are not. */
void elastic_announce(struct elastic *job);

/* The others hear that this member is lost; it lives and does not know. */
void elastic_give_up(struct elastic *job, int member);

/* The job goes on without this member, which is in no world: it is told to leave. */
void elastic_dismiss(struct elastic *job, int member, const char *text);

/* Works until done() says so or the time is over: false. */
bool elastic_run(struct elastic *job, bool (*done)(struct elastic *job, void *arg), void *arg,
                 int ms);

/* The same until *at, where a member notes its step, is step or more. */
bool elastic_run_to(struct elastic *job, const _Atomic int *at, int step, int ms);

/* All members have ended. */
bool elastic_all_over(struct elastic *job, void *arg);

/* Kills what lives, closes everything. */
void elastic_fini(struct elastic *job);

#endif
