/* SPDX-License-Identifier: Apache-2.0
 *
 * rule_functions: the functions of the program that divide ranks into groups, by their names
 * (hvd_rule_define()). They belong to the process, because a rank that joins needs them before it
 * has an engine. Any thread.
 */
#ifndef HVD_ENGINE_RULE_FUNCTIONS_H
#define HVD_ENGINE_RULE_FUNCTIONS_H

#include <stdbool.h>

#include "core/base/err.h"
#include "core/engine/rule.h"

/* Replaces the function that had the name. -EINVAL, -ENOMEM. */
int rule_function_define(const char *name, struct rule_function f, struct err *err);

/* -ENOENT: there is none. */
int rule_function_find(const char *name, struct rule_function *ret, struct err *err);

#endif
