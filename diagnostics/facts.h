/* SPDX-License-Identifier: Apache-2.0
 *
 * facts: facts about a machine and a job, for the conditions of version rules (rules.h):
 * "container", "infiniband", "gpus>1", "sm<75".
 *
 * Checks make a struct facts on the stack and hand facts_holds() to rules_hits(). An unknown fact
 * does not hold. Reads machine, setting and the answers of the probes that the check has named.
 */
#ifndef HVD_DIAGNOSTICS_FACTS_H
#define HVD_DIAGNOSTICS_FACTS_H

#include <stdbool.h>

#include "diagnostics/check.h"
#include "diagnostics/rules.h"

struct facts {
    const struct view *view;
    const char *cuda; /* the CUDA runtime in question; NULL: unknown */
};

/* Returns whether a fact ("gpus>1") holds. arg is a struct facts. */
bool facts_holds(void *arg, const char *fact);

/* Returns false for a word that is no fact: a typing error in a rule. */
bool facts_known(const char *fact);

/* How many GPUs there are: NVML's count, else the device files; -1: unknown. */
int facts_gpus(const struct machine *m);
/* Compute capability times ten ("9.0" is 90) of the oldest and of the newest GPU; 0: unknown. */
void facts_sm(const struct machine *m, int *ret_oldest, int *ret_newest);

/* Writes "9.0" for 90. Returns dst. */
const char *facts_sm_text(int sm, char dst[16]);

/* Judges a component's version by the rules. The result gets the severity, text and fix of the
 * worst rule that matches, and as its why the texts and references of all that match, as far as
 * they fit. Returns false and leaves the result when no rule matches. what: "libnccl 2.8.3 in
 * /usr/lib". */
bool facts_judge(struct result *r, const struct facts *facts, const char *component,
                 const char *version, const char *what);

#endif
