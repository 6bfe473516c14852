/* SPDX-License-Identifier: Apache-2.0
 *
 * set_report: what an agent reports of the sets of one rank with its progress: how many there are,
 * the limits that they use up, and which of them are broken (core/engine/SETS.md). A part of the
 * body of POST /v1/report and of the status. Pure.
 */
#ifndef HVD_MEMBER_SET_REPORT_H
#define HVD_MEMBER_SET_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/ctl.h"
#include "core/base/err.h"

struct json_t; /* jansson's */

struct broken_set {
    uint32_t number;
    int64_t since;                  /* ms since 1970, by the clock of the rank's host */
    char text[CTL_BROKEN_TEXT_MAX]; /* "set 1 (ranks 0, 1) has lost 1 of its 3 ranks" */
};

struct set_report {
    uint64_t n; /* sets that the rank is in; 0: the other fields are 0, too */
    uint64_t descriptors, descriptors_max; /* open ones, and their limit; 0: not known */
    uint64_t segments; /* bytes of memory in the shared segments that the rank has made: of its
                          world and of the sets in which it is the lowest rank of its host */
    uint64_t memory_left, memory_limit;   /* bytes, of the container (base/memory.h); limit 0: not
                                             known */
    uint64_t communicators;               /* of NCCL's, of the world and of sets */
    uint64_t gpu_memory_left, gpu_memory; /* bytes, of the GPU, if there are communicators;
                                             gpu_memory 0: not known */
    uint64_t broken;                      /* sets that are broken; the first of them: */
    int listed;
    struct broken_set list[CTL_BROKEN_MAX];
};

/* Reads the body of a frame SETS (base/ctl.h) of a rank of this or an older version: count, broken
 * sets, communicators and memory of the GPU. -EPROTO, with *ret unchanged. What the agent counts
 * stays in *ret. */
int set_report_take(const uint8_t *body, size_t len, struct set_report *ret);

/* Adds the fields to a rank's object; none if n is 0. */
void set_report_put(const struct set_report *r, struct json_t **j);

/* Reads the fields from a rank's object. Fields that are missing are 0: an older agent wrote it. */
int set_report_read(struct json_t *j, struct set_report *ret, struct err *err);

#endif
