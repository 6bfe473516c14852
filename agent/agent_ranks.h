/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_ranks: the ranks of one agent: what the coordinator assigned to it, and their start and
 * end. Knows nothing of the coordinator or of what ranks say. On the agent's loop, one thread.
 */
#ifndef HVD_AGENT_AGENT_RANKS_H
#define HVD_AGENT_AGENT_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/binding.h"
#include "agent/config.h"
#include "agent/rank.h"
#include "core/base/loop.h"
#include "core/member/protocol.h"

struct agent_ranks_ops {
    struct rank_ops rank; /* callbacks of each rank, with the same arg */
    void (*all_started)(void *arg);
    void (*failed)(void *arg, const struct err *err); /* a rank of the welcome could not start */
};

struct agent_ranks {
    struct loop *loop;
    const struct agent_config *config;
    const struct agent_ranks_ops *ops;
    void *arg;
    struct welcome_body welcome; /* filled by the owner's join; later ranks are appended */
    struct rank **list;          /* [n], started ranks, also ended ones */
    int n;
    int nstarted; /* how many of welcome.assignments were started */
    struct loop_timer start_timer;
    uint64_t late_signals; /* bit mask of signals for ranks that are not started yet */
    struct binding binding;
    const char *cwd; /* directory of ranks; NULL: no rank was started yet */
    bool stopping;   /* the ranks are being ended */
};

/* config and ops must outlive rs. */
void agent_ranks_init(struct agent_ranks *rs, struct loop *loop, const struct agent_config *config,
                      const struct agent_ranks_ops *ops, void *arg);
void agent_ranks_fini(struct agent_ranks *rs);

/* Frees the ranks, whose processes have ended or are left to reap_rest(). */
void agent_ranks_drop(struct agent_ranks *rs);

/* Starts the ranks of the welcome, some in each iteration of the loop. Call after
 * rank_environment_apply(). */
int agent_ranks_start(struct agent_ranks *rs, struct err *err);

/* True from agent_ranks_start() until it has started all ranks of the welcome, or the ranks are
 * being ended. */
bool agent_ranks_starting(const struct agent_ranks *rs);

/* Starts one more rank of an elastic job, at once or with the first ranks. Returns 0 also if the
 * member is known already. */
int agent_ranks_add(struct agent_ranks *rs, int member, int local_rank, struct err *err);

/* The rank with this member number, ended or not, until it is freed; else NULL. */
struct rank *agent_ranks_find(const struct agent_ranks *rs, int member);

bool agent_ranks_all_closed(const struct agent_ranks *rs);

void agent_ranks_signal(struct agent_ranks *rs, int signo);

#define AGENT_STOP_GRACE_MS 2000 /* grace_ms where the coordinator asks for no other */

/* Ends all ranks: SIGTERM now, SIGKILL after grace_ms. No rank is started any more. */
void agent_ranks_stop(struct agent_ranks *rs, int grace_ms);

/* Stops or resumes reading what ranks print. */
void agent_ranks_pause(struct agent_ranks *rs, bool pause);

/* Handles children that have ended, ranks and others. Sets *other to 0 if the child with that pid
 * has ended. */
void agent_ranks_reap(struct agent_ranks *rs, pid_t *other);

#endif
