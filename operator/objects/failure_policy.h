/* SPDX-License-Identifier: Apache-2.0
 *
 * failure_policy: spec.runPolicy.failurePolicy.rules of an HvdJob: what a lost worker means, by its
 * exit codes or its pod's conditions. The vocabulary is that of podFailurePolicy of a batch/v1 Job.
 * Rules stay JSON; the caller owns them. Pure.
 */
#ifndef HVD_OPERATOR_OBJECTS_FAILURE_POLICY_H
#define HVD_OPERATOR_OBJECTS_FAILURE_POLICY_H

#include "operator/objects/hvdjob_status.h"
#include "operator/objects/pod.h"

/* Limits as in podFailurePolicy. */
#define FAILURE_RULES_MAX      20
#define FAILURE_CODES_MAX      255
#define FAILURE_CONDITIONS_MAX 20

/* Checks the mapping failurePolicy. pod: spec.template.spec, which has the containers that rules
 * may name; NULL: they may name any, as earlier operators accepted. -EINVAL: err names the field.
 */
int failure_policy_check(json_t *policy, json_t *pod, struct err *err);

/* The first rule that matches the failed pod: fills in name ("rules[2]" if the rule has none),
 * action, pod and cause of *ret. False: none matches; ret is untouched. rules: a list that
 * failure_policy_check() has accepted, or NULL. A rule on exit codes ignores a pod whose agent
 * ended by itself: that code is not the program's. */
bool failure_policy_match(json_t *rules, const struct pod *p, struct job_failure_rule *ret);

#endif
