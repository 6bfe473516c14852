/* SPDX-License-Identifier: Apache-2.0
 *
 * facts: what the conditions of version rules (rules.h) ask about a machine and a job: "container",
 * "infiniband", "gpus>1", "sm<75".
 *
 * Checks make one on the stack and hand facts_holds() to rules_hits(). A fact that cannot be known
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

/* arg is a struct facts. */
bool facts_holds(void *arg, const char *fact);

/* False for a word that no machine can ever satisfy: a typing error in a rule. */
bool facts_known(const char *fact);

/* How many GPUs there are: NVML's count, else the device files; -1: unknown. */
int facts_gpus(const struct machine *m);
/* Compute capability times ten of the oldest and newest GPU, 0: unknown. */
void facts_sm(const struct machine *m, int *ret_oldest, int *ret_newest);

/* "9.0" of 90. Returns dst. */
const char *facts_sm_text(int sm, char dst[16]);

/* The worst rules that this version of the component hits, as a result: fail, warn or info with the
 * rule's text, fix and reference; the texts of others follow. False: none hits, the result is
 * untouched. what: "libnccl 2.8.3 in /usr/lib". */
bool facts_judge(struct result *r, const struct facts *facts, const char *component,
                 const char *version, const char *what);

#endif
