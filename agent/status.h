/* SPDX-License-Identifier: Apache-2.0
 *
 * status: parses a coordinator's answer to GET /v1/status (core/member/README.md) and prints it on
 * one screen. Used by hvdrun's commands. Pure but for printing.
 */
#ifndef HVD_AGENT_STATUS_H
#define HVD_AGENT_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/json/json.h"
#include "core/member/protocol.h"

struct status_member {
    int member, rank; /* rank -1: not in the current epoch */
    int place;        /* -1: the job keeps no places, or the member is not in the current epoch */
    char host[MEMBER_NAME_MAX];
    char state[24]; /* as in the protocol, but "leaving" if asked to leave, and for a joiner
                       "starting" or "ready to enter" */
    int pid;
    int64_t batches, idle_ms;             /* idle_ms -1: not known */
    int64_t sets;                         /* that it is in */
    int64_t descriptors, descriptors_max; /* of a member in sets: open ones, and their limit */
    int64_t segments; /* of a member in sets: bytes of shared memory that it has made */
    int64_t memory_left, memory_limit;   /* bytes, of its container; limit 0: not known */
    int64_t communicators;               /* of NCCL's, of a member in sets */
    int64_t gpu_memory_left, gpu_memory; /* bytes, of its GPU; gpu_memory 0: not known */
    int64_t broken;                      /* sets of it that are broken */
};

/* A fixed set that has lost a rank. */
struct status_set {
    int64_t number, since;          /* since: ms since 1970 */
    char text[CTL_BROKEN_TEXT_MAX]; /* "set 1 (ranks 0, 1) has lost 1 of its 3 ranks" */
};

struct status {
    char job[MEMBER_NAME_MAX];
    char state[24];
    char waiting_for[512]; /* "": nothing */
    bool elastic;
    int size; /* ranks in the current epoch */
    int np, min_np, max_np;
    int64_t epoch;
    int64_t change, asked; /* last planned change in effect, and last one requested */
    int64_t restarts;
    char cause[512]; /* cause of the last change; "": there was none */
    int64_t changed; /* ms since 1970 */
    double change_ms;
    double repair_last_ms, repair_max_ms; /* 0: no repair yet */
    double batches_per_s, bytes_per_s;    /* negative: not known */
    int findings;                         /* number of the doctors' findings that are not cleared */
    struct status_member *members;
    int n;
    struct status_set *broken; /* in the order of numbers */
    int nbroken;
};

/* Fields that an older coordinator does not send stay empty. -EINVAL names a field that is
 * required. Free *ret with status_fini(). */
int status_read(const json_t *j, struct status *ret, struct err *err);
void status_fini(struct status *s);

/* Number of members that run. */
int status_running(const struct status *s);

/* Prints one screen. name is the user's name of the job, started and now are ms since 1970. With
 * many members prints a line per host, unless all is set. */
int status_print(const struct status *s, const char *name, int64_t started, int64_t now, bool all,
                 FILE *out);

/* Writes "14 s", "2 h 5 min", "3 d 4 h" to dst and returns dst. */
const char *status_duration(int64_t ms, char *dst, size_t size);

#endif
