/* SPDX-License-Identifier: Apache-2.0
 *
 * job_drains: the drained nodes with workers of a job, for the job's status: since when each is
 * drained, in the order in which they were seen, at most JOB_DRAINS_MAX. Pure; one owner.
 */
#ifndef HVD_OPERATOR_OBJECTS_JOB_DRAINS_H
#define HVD_OPERATOR_OBJECTS_JOB_DRAINS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

#define JOB_DRAINS_MAX 32

struct job_drain {
    char node[256];
    int64_t since;
    bool over; /* the job has delayed this drain for the limit */
};

struct job_drains {
    struct job_drain *all; /* owned; zero-initialized: empty */
    int n;
};

/* The drain of that node. A node that found the list full counts as the last one of the list, so
 * that its drain ends, too. NULL: none. */
const struct job_drain *job_drains_find(const struct job_drains *d, const char *node);

/* Appends a node that is not in the list. Does nothing if the list is full. -ENOMEM. */
int job_drains_add(struct job_drains *d, const char *node, int64_t since);
void job_drains_remove(struct job_drains *d, int i);

/* When the first of them began; MOMENT_NONE: the list is empty. */
int64_t job_drains_first(const struct job_drains *d);

/* -ENOMEM; ret is untouched then. */
int job_drains_copy(const struct job_drains *d, struct job_drains *ret);
void job_drains_fini(struct job_drains *d);

/* Parses the list in a job's status. Invalid entries are ignored. -ENOMEM; ret is untouched then.
 */
int job_drains_parse(json_t *list, struct job_drains *ret);
json_t *job_drains_write(const struct job_drains *d);

#endif
