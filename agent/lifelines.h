/* SPDX-License-Identifier: Apache-2.0
 *
 * lifelines: detects that ranks of this host died or fell silent: one lifeline (base/lifeline) for
 * each rank, and a check of all beats every HVD_HEARTBEAT_MS. On the agent's loop, one thread.
 *
 * A death is reported at once. For a silent rank, /proc is read (base/vitals): a stopped process is
 * evicted, a process that wants to run and cannot is suspected, and evicted after ten seconds.
 * Eviction itself is up to the owner.
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

/* The lifeline of one rank, embedded in struct rank. Zero-initialized: none. */
struct rank_lifeline {
    struct lifeline *line; /* NULL: none, or the rank's end was reported */
    struct lifelines *of;
    struct loop_fd lfd;
    struct list node;
    bool suspect;
};

struct lifelines_ops {
    /* The rank is dead, or (evict) alive and to be killed. text: "died", "was stopped (state T) and
     * silent for 410 ms: it was ended". The lifeline is stopped already. */
    void (*gone)(void *arg, struct rank_lifeline *rl, bool evict, const char *text);
    /* The rank is silent (text: "is silent for 2010 ms: asleep (state S)"), or is no longer silent.
     */
    void (*suspected)(void *arg, struct rank_lifeline *rl, const char *text);
};

struct lifelines {
    struct loop *loop;
    const struct lifelines_ops *ops;
    void *arg;
    int beat_ms;
    struct vitals_limits limits;
    struct list all;
    struct loop_timer timer; /* runs while there is a lifeline */
    /* Whether the CPU quota of this host's cgroup, which its ranks share, runs out. Read while a
     * rank is late. */
    struct machine machine;
    struct cgroup cgroup;
    bool has_machine, throttled;
    int64_t throttles; /* counter at the last read; -1: not read lately */
};

/* Returns 0, or -EINVAL if HVD_HEARTBEAT_MS is invalid. */
int lifelines_init(struct lifelines *ls, struct loop *loop, const struct lifelines_ops *ops,
                   void *arg, struct err *err);

/* Stop all lifelines before. Zero-initialized is fine. */
void lifelines_fini(struct lifelines *ls);

/* Makes a new lifeline and replaces the previous one. The caller sends *ret_fd to the rank and
 * closes it. */
int rank_lifeline_start(struct lifelines *ls, struct rank_lifeline *rl, int *ret_fd,
                        struct err *err);

/* Stops reports about this rank. */
void rank_lifeline_stop(struct rank_lifeline *rl);

#endif
