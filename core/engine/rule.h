/* SPDX-License-Identifier: Apache-2.0
 *
 * rule: a text of hvd_set_split() that divides the ranks of a world into groups: "host", "every 4",
 * "blocks 8", or the name of a function of the program, with or without a number. Pure.
 */
#ifndef HVD_ENGINE_RULE_H
#define HVD_ENGINE_RULE_H

#include <hvd.h>

#include "core/base/err.h"

enum rule_kind { RULE_HOST, RULE_EVERY, RULE_BLOCKS, RULE_FUNCTION };

struct rule {
    enum rule_kind kind;
    int k;                       /* 1 or more; 0: the text has no number */
    char name[HVD_MAX_NAME + 1]; /* of the function, or "host" */
};

/* A function of the program (hvd_rule_define()). */
struct rule_function {
    hvd_rule_f call; /* NULL: the rule needs none */
    void *arg;
};

/* Whether a function may have this name: letters, digits, '_', '.' and '-', and none of the rules
 * above. */
int rule_check_name(const char *name, struct err *err);

/* There is one text for each rule, so equal rules have equal texts. -EINVAL: it is no rule. */
int rule_parse(const char *text, struct rule *ret, struct err *err);

/* Writes each rank's group, 0 or more (-1: none), to ret_groups[roster->size]. -EINVAL: the
 * function has given something else. */
int rule_divide(const struct rule *rule, const struct rule_function *function,
                const struct hvd_roster *roster, int *ret_groups, struct err *err);

/* The ranks of this rank's group, in their order, to ret_ranks[n]. Returns how many there are; 0:
 * it is in no group. */
int rule_group_of(const int *groups, int n, int rank, int *ret_ranks);

#endif
