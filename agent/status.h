/* SPDX-License-Identifier: Apache-2.0
 *
 * status: what a coordinator answers to GET /v1/status (core/member/README.md), read and put on one
 * screen for a person. Used by hvdrun's commands. Pure but for printing.
 */
#ifndef HVD_AGENT_STATUS_H
#define HVD_AGENT_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/json/json.h"
#include "core/member/protocol.h"

struct status_member {
    int member, rank; /* rank -1: in no world */
    char host[MEMBER_NAME_MAX];
    char state[24]; /* in the protocol's words, but "leaving" of one that was asked to; of one that
                       is to join those that train "starting", "ready to enter" */
    int pid;
    int64_t batches, idle_ms; /* idle_ms -1: not known */
};

struct status {
    char job[MEMBER_NAME_MAX];
    char state[24];
    char waiting_for[512]; /* "" */
    bool elastic;
    int size; /* of the world */
    int np, min_np, max_np;
    int64_t epoch;
    int64_t change, asked; /* the last planned change in effect, and the last asked for */
    int64_t restarts;
    char cause[512]; /* of the last change; "" there was none */
    int64_t changed; /* ms since 1970 */
    double change_ms;
    double repair_last_ms, repair_max_ms; /* 0: there was none */
    double batches_per_s, bytes_per_s;    /* below 0: not known */
    int findings;                         /* of the doctors, that stand */
    struct status_member *members;
    int n;
};

/* What an older coordinator does not tell stays empty. -EINVAL, with the field where it matters.
 * ret goes to status_fini(). */
int status_read(const json_t *j, struct status *ret, struct err *err);
void status_fini(struct status *s);

/* Members that run, of those there are. */
int status_running(const struct status *s);

/* One screen: name is what the user calls the job, started and now are ms since 1970. With many
 * members a line a host; all: a line each all the same. */
int status_print(const struct status *s, const char *name, int64_t started, int64_t now, bool all,
                 FILE *out);

/* "14 s", "2 h 5 min", "3 d 4 h" into dst, which is returned. */
const char *status_duration(int64_t ms, char *dst, size_t size);

#endif
