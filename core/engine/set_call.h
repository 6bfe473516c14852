/* SPDX-License-Identifier: Apache-2.0
 *
 * set_call: the first step of hvd_set_add(), hvd_set_split() and hvd_set_remove(): all ranks of
 * the world make the same call, or all get an error that says what two of them have called.
 */
#ifndef HVD_ENGINE_SET_CALL_H
#define HVD_ENGINE_SET_CALL_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/engine/vote.h"

/* The vote's name, which a stall report shows. */
#define SET_CALL_NAME "hvd_set_add or hvd_set_remove"

struct set_call {
    uint32_t words[VOTE_WORDS]; /* differ for different calls */
    char text[160];             /* "adds ranks 0, 2" */
};

void set_call_add(struct set_call *call, const int *ranks, int n);
void set_call_split(struct set_call *call, const char *rule);
void set_call_remove(struct set_call *call, int set);

/* rank: this rank's number in the world. mine: as of vote_well(). -EINVAL: the calls differ. */
int set_call_compare(const struct vote *v, const struct set_call *call, int rank,
                     const struct err *mine, struct err *err);

#endif
