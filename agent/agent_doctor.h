/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_doctor: the doctor of an agent: a preflight before or beside the start of the ranks, by the
 * job's policy; a watch of the host while they run; both send their findings to the coordinator. On
 * the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_DOCTOR_H
#define HVD_AGENT_AGENT_DOCTOR_H

#include <stdbool.h>

#include "agent/agent_ranks.h"
#include "agent/config.h"
#include "agent/outbox.h"
#include "agent/preflight.h"
#include "core/member/findings.h"
#include "diagnostics/watch.h"

struct agent_doctor_ops {
    int (*start_ranks)(void *arg, struct err *err);
    void (*failed)(void *arg, const struct err *err); /* ranks could not start */
    void (*ended)(void *arg);                         /* the preflight has ended */
};

struct agent_doctor {
    struct loop *loop;
    const struct agent_config *config;
    const struct agent_ranks *ranks;
    struct outbox *outbox;
    const struct agent_doctor_ops *ops;
    void *arg;
    struct preflight preflight;
    struct findings findings; /* findings of this host that are not cleared */
    bool refused; /* policy fail, and the preflight failed or found a failure: no rank is started */
    bool has_machine;
    struct machine machine;
    struct watch *watch; /* NULL: no watch runs */
    struct loop_timer watch_timer;
};

/* Everything that the arguments point to must outlive d. */
void agent_doctor_init(struct agent_doctor *d, struct loop *loop, const struct agent_config *config,
                       const struct agent_ranks *ranks, struct outbox *outbox,
                       const struct agent_doctor_ops *ops, void *arg);
void agent_doctor_fini(struct agent_doctor *d);

/* Starts the ranks and the preflight, in the order that the doctor's policy asks for. */
int agent_doctor_begin(struct agent_doctor *d, struct err *err);

/* True while a rank has failed and the preflight still runs: its findings may explain the failure.
 */
bool agent_doctor_awaited(const struct agent_doctor *d);

#endif
