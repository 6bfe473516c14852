/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile_private: what the files of reconcile share. One struct of it lives as long as one call.
 */
#ifndef HVD_OPERATOR_RECONCILE_PRIVATE_H
#define HVD_OPERATOR_RECONCILE_PRIVATE_H

#include "operator/reconcile/phases.h"
#include "operator/reconcile/reconcile.h"
#include "operator/reconcile/workers.h"

struct reconciling {
    const struct reconcile_input *in;
    const struct hvdjob *job;
    struct hvdjob_status *st; /* as it is to be: in ret */
    struct actions *ret;
    struct workers w; /* by st */
    bool held; /* no worker is made: the template is another one than that of those there are */
    char blocked[320]; /* why a worker's name cannot be used; "" */
    struct err *err;
};

/* reconcile_losses.c: counts pods that failed since the last time. */
int reconcile_losses(struct reconciling *r);
/* Until when no lost worker is replaced; MOMENT_NONE: no pause. */
int64_t reconcile_pause(const struct reconciling *r);

/* reconcile_phase.c: goes through the table of phases until no event is so. */
int reconcile_phase(struct reconciling *r);

/* reconcile_pods.c: the pods that are to be made, let go and deleted in the phase; raises attempts.
 */
int reconcile_pods(struct reconciling *r);

/* reconcile_words.c: counts, conditions and messages. */
int reconcile_words(struct reconciling *r);

#endif
