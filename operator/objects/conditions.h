/* SPDX-License-Identifier: Apache-2.0
 *
 * conditions: metav1.Condition, of HvdJobs and of foreign objects. HvdJob's are a fixed set with
 * positive names. lastTransitionTime changes only with the status, never with reason or message.
 */
#ifndef HVD_OPERATOR_OBJECTS_CONDITIONS_H
#define HVD_OPERATOR_OBJECTS_CONDITIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum condition_type {
    CONDITION_VALID,     /* the spec is valid */
    CONDITION_ADMITTED,  /* the job's workers may be scheduled */
    CONDITION_READY,     /* at least minWorkers run */
    CONDITION_SUSPENDED, /* spec.runPolicy.suspend */
    CONDITION_COMPLETE,  /* all workers succeeded */
    CONDITION_FAILED,    /* the job failed */
    CONDITIONS,
};

enum condition_status { CONDITION_ABSENT, CONDITION_TRUE, CONDITION_FALSE };

struct condition {
    enum condition_status status;
    int64_t since, generation;
    char reason[64]; /* CamelCase, for programs */
    char *message;   /* for people; owned, NULL: none */
};

const char *condition_name(enum condition_type type);

/* Is the condition of that type True in a foreign object's list? */
bool conditions_true(json_t *list, const char *type);
/* The message of the condition of that type in list; NULL: no such condition, or no message.
 * Borrowed. */
const char *conditions_message(json_t *list, const char *type);

/* Read, copy and write an HvdJob's own conditions, which are a list in its status. Unknown types
 * are ignored. -ENOMEM; the caller calls conditions_fini() on ret in any case. */
int conditions_parse(json_t *list, struct condition ret[CONDITIONS]);
int conditions_copy(const struct condition from[CONDITIONS], struct condition ret[CONDITIONS]);
void conditions_fini(struct condition all[CONDITIONS]);
json_t *conditions_write(const struct condition all[CONDITIONS]);
/* Is this element of an HvdJob's list one of its own conditions? False: it is of another type, so
 * another program's, or no condition at all. */
bool conditions_own(json_t *condition);

/* Sets the fields of *c. now becomes the transition time if the status changes. -ENOMEM. */
int condition_set(struct condition *c, bool status, const char *reason, const char *message,
                  int64_t generation, int64_t now);

#endif
