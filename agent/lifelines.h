/* SPDX-License-Identifier: Apache-2.0
 *
 * lifelines: whether the ranks of this host live: a lifeline (base/lifeline) for each of them, and
 * a look at all their beats every HVD_HEARTBEAT_MS. Of the agent's loop, one thread.
 *
 * A death is told at once. A rank that is silent is asked after in /proc (base/vitals): who is
 * stopped is given up, who wants to run and cannot is suspected for ten seconds first. Giving it
 * up, with all that belongs to that, is the owner's.
 */
#ifndef HVD_AGENT_LIFELINES_H
#define HVD_AGENT_LIFELINES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/lifeline.h"
#include "core/base/list.h"
#include "core/base/loop.h"
#include "core/base/vitals.h"
#include "diagnostics/cgroup.h"
#include "diagnostics/machine.h"

struct lifelines;

/* One rank's, embedded in what it belongs to; zero-initialized: none. */
struct pulse {
    struct lifeline *line; /* NULL: none, or it has told what it had to tell */
    struct lifelines *of;
    struct loop_fd lfd;
    struct list node;
    bool suspect;
};

struct lifelines_ops {
    /* It is dead (evict: it lives, but is to be ended now); text: "died", "was stopped (state T)
     * and silent for 410 ms: it was ended". The pulse is stopped already. */
    void (*gone)(void *arg, struct pulse *p, bool evict, const char *text);
    /* It is silent (text: "pid 71 is silent for 310 ms: asleep (state S)"), or heard again. */
    void (*suspected)(void *arg, struct pulse *p, const char *text);
};

struct lifelines {
    struct loop *loop;
    const struct lifelines_ops *ops;
    void *arg;
    int beat_ms;
    struct vitals_limits limits;
    struct list all;
    struct loop_timer timer; /* runs while there is a pulse */
    /* The processor quota of this host's control group, which its ranks share: looked at while a
     * rank is late. */
    struct machine machine;
    struct cgroup cgroup;
    bool has_machine, throttled;
    int64_t throttles; /* -1: not looked at lately */
};

/* -EINVAL: HVD_HEARTBEAT_MS. */
int lifelines_init(struct lifelines *ls, struct loop *loop, const struct lifelines_ops *ops,
                   void *arg, struct err *err);

/* All pulses are stopped before. Zero-initialized is fine. */
void lifelines_fini(struct lifelines *ls);

/* A new lifeline, in the place of one that was there; *ret_fd is the rank's, the caller's to send
 * and to close. */
int pulse_start(struct lifelines *ls, struct pulse *p, int *ret_fd, struct err *err);

/* Nothing is told of it any more. */
void pulse_stop(struct pulse *p);

#endif
