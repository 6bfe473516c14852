/* SPDX-License-Identifier: Apache-2.0
 *
 * conditions: metav1.Condition, ours and others'. Ours are a fixed set with positive names; a
 * transition's time changes with the status alone, never with the words.
 */
#ifndef HVD_OPERATOR_OBJECTS_CONDITIONS_H
#define HVD_OPERATOR_OBJECTS_CONDITIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum condition_type {
    CONDITION_VALID,     /* the spec can be run */
    CONDITION_ADMITTED,  /* its workers may be scheduled */
    CONDITION_READY,     /* at least minWorkers run */
    CONDITION_SUSPENDED, /* it was asked to have no workers */
    CONDITION_COMPLETE,  /* it has ended well */
    CONDITION_FAILED,    /* it has ended otherwise */
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

/* Whether others' list says that type is True. */
bool conditions_true(json_t *list, const char *type);
/* Its message, NULL: it is not there, or has none. Borrowed. */
const char *conditions_message(json_t *list, const char *type);

/* Our own from and to the list of a status. Reading leaves out what it does not know. -ENOMEM; ret
 * is to be given to _fini() in any case. */
int conditions_parse(json_t *list, struct condition ret[CONDITIONS]);
int conditions_copy(const struct condition from[CONDITIONS], struct condition ret[CONDITIONS]);
void conditions_fini(struct condition all[CONDITIONS]);
json_t *conditions_write(const struct condition all[CONDITIONS]);

/* now: moment of the transition, if this is one. -ENOMEM. */
int condition_set(struct condition *c, bool status, const char *reason, const char *message,
                  int64_t generation, int64_t now);

#endif
