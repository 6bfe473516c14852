/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_ranks: see agent_ranks.h.
 */
#include "agent/agent_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/priority.h"
#include "agent/rank_environment.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"

#define EXEC_S   60 /* limit for exec: from a slow file server it takes seconds */
#define RANK_FDS 4  /* for each rank: two pipes, the control socket, a temporary descriptor */
#define SLICE_MS 20 /* longest time of starting ranks in one iteration of the loop */

void agent_ranks_init(struct agent_ranks *rs, struct loop *loop, const struct agent_config *config,
                      const struct agent_ranks_ops *ops, void *arg)
{
    *rs = (struct agent_ranks){.loop = loop, .config = config, .ops = ops, .arg = arg};
}

static void drop(struct rank *rank)
{
    rank_fini(rank);
    free(rank);
}

void agent_ranks_drop(struct agent_ranks *rs)
{
    for (int i = 0; i < rs->n; i++)
        drop(rs->list[i]);
    rs->n = 0;
}

void agent_ranks_fini(struct agent_ranks *rs)
{
    agent_ranks_drop(rs);
    if (rs->loop)
        loop_timer_stop(rs->loop, &rs->start_timer);
    welcome_fini(&rs->welcome);
    free(rs->list);
    rs->list = NULL;
    binding_fini(&rs->binding);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Returns the limit for exec. It is not just start_timeout, which in an elastic job covers a
 * joiner's wait for a boundary. */
static int exec_ms(const struct agent_ranks *rs)
{
    return 1000 * (rs->config->start_timeout < EXEC_S ? rs->config->start_timeout : EXEC_S);
}

static int start_rank(struct agent_ranks *rs, struct rank *rank,
                      const struct assignment *assignment, struct err *err)
{
    int child_fd;
    char **own = NULL, **env = NULL;
    int rc = rank_init(rank, rs->loop, &rs->ops->rank, rs->arg, assignment, &child_fd, err);
    if (rc < 0)
        return rc;
    rc = rank_environment_make(rs->config, &rs->welcome, assignment, child_fd, &own, &env);
    if (rc < 0) {
        close(child_fd);
        return err_set(err, ENOMEM, "no memory for an environment");
    }
    struct rank_spec spec = {.argv = rs->config->argv,
                             .env = env,
                             .cwd = rs->cwd,
                             .exec_ms = exec_ms(rs),
                             .cpus = binding_cpus(&rs->binding, assignment->local_rank)};
    rc = rank_start(rank, &spec, child_fd, err);
    strings_free(own);
    free(env);
    return rc;
}

static int start_one(struct agent_ranks *rs, const struct assignment *assignment, struct err *err)
{
    struct rank *rank = calloc(1, sizeof(*rank));
    struct rank **grown = realloc(rs->list, ((size_t)rs->n + 1) * sizeof(*grown));
    if (grown)
        rs->list = grown;
    if (!rank || !grown) {
        free(rank);
        return err_set(err, ENOMEM, "no memory for a rank");
    }
    int rc = start_rank(rs, rank, assignment, err);
    if (rc < 0) {
        drop(rank);
        return rc;
    }
    rs->list[rs->n++] = rank;
    if (rs->config->report_bindings)
        fprintf(stderr, "rank %d on %s: %s\n", assignment->member, rs->config->host,
                binding_text(&rs->binding, assignment->local_rank));
    return 0;
}

/* The directory of the ranks. On another host it may not exist. */
static const char *choose_cwd(const struct agent_config *config)
{
    const char *home = getenv("HOME");
    if (!config->cwd_may_lack || access(config->cwd, X_OK) == 0)
        return config->cwd;
    log_warn("there is no directory %s here: ranks run in %s", config->cwd, home ? home : "/");
    return home ? home : "/";
}

bool agent_ranks_starting(const struct agent_ranks *rs)
{
    return rs->cwd && !rs->stopping && rs->nstarted < rs->welcome.nassignments;
}

/* Starts ranks for SLICE_MS, then continues in the next iteration of the loop: in between the agent
 * serves hvdrun and the ranks that run. */
static void start_some(void *arg)
{
    struct agent_ranks *rs = arg;
    struct err err;
    uint64_t end = deadline_in_ms(SLICE_MS);
    while (agent_ranks_starting(rs)) {
        const struct assignment assignment = rs->welcome.assignments[rs->nstarted++];
        if (start_one(rs, &assignment, &err) < 0) {
            rs->ops->failed(rs->arg, &err);
            return;
        }
        for (int signo = 1; signo < 64; signo++) /* signals received before this rank was started */
            if (rs->late_signals & 1ULL << signo)
                rank_kill(rs->list[rs->n - 1], signo);
        if (deadline_passed(end))
            break;
    }
    if (agent_ranks_starting(rs)) {
        loop_timer_start(rs->loop, &rs->start_timer, 0, start_some, rs);
        return;
    }
    if (!rs->config->pod) /* autogroup has no effect inside a pod's cgroup */
        priority_new_session();
    rs->ops->all_started(rs->arg);
}

int agent_ranks_start(struct agent_ranks *rs, struct err *err)
{
    int n = rs->welcome.elastic ? rs->welcome.slots : rs->welcome.nassignments;
    int rc = fd_limit_need((size_t)n * RANK_FDS, err);
    if (rc < 0) {
        err_prefix(err, "%d ranks on host %s", n, rs->config->host);
        return rc;
    }
    rs->cwd = choose_cwd(rs->config);
    rc = binding_init(&rs->binding, rs->config->bind_to, n, err);
    if (rc == 0)
        start_some(rs);
    return rc;
}

/* ---- ranks that start later ------------------------------------------------------------------ */

/* Frees ranks that had this local rank and have ended. */
static void sweep(struct agent_ranks *rs, int local_rank)
{
    int kept = 0;
    for (int i = 0; i < rs->n; i++) {
        struct rank *rank = rs->list[i];
        if (rank->closed && rank->assignment.local_rank == local_rank)
            drop(rank);
        else
            rs->list[kept++] = rank;
    }
    rs->n = kept;
}

/* Call while the first ranks are not all started yet: the new rank is started with them. */
static int start_later(struct agent_ranks *rs, const struct assignment *assignment, struct err *err)
{
    struct welcome_body *w = &rs->welcome;
    for (int i = 0; i < w->nassignments; i++)
        if (w->assignments[i].member == assignment->member)
            return 0; /* the welcome lists the member already */
    struct assignment *grown =
        realloc(w->assignments, ((size_t)w->nassignments + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for a rank");
    w->assignments = grown;
    w->assignments[w->nassignments++] = *assignment;
    return 0;
}

int agent_ranks_add(struct agent_ranks *rs, int member, int local_rank, struct err *err)
{
    struct assignment assignment = {member, local_rank, 0, 1};
    if (!rs->welcome.elastic || local_rank < 0 || local_rank >= MEMBER_RANKS_MAX ||
        agent_ranks_find(rs, member))
        return 0;
    if (local_rank >= rs->welcome.slots) /* the discovery script has raised the host's slots */
        rs->welcome.slots = local_rank + 1;
    if (rs->welcome.nassignments > 0) {
        assignment.cross_rank = rs->welcome.assignments[0].cross_rank;
        assignment.cross_size = rs->welcome.assignments[0].cross_size;
    }
    if (rs->stopping)
        return err_set(err, ESHUTDOWN, "the ranks of this host are being ended");
    if (!rs->cwd || agent_ranks_starting(rs))
        return start_later(rs, &assignment, err);
    sweep(rs, local_rank);
    return start_one(rs, &assignment, err);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

struct rank *agent_ranks_find(const struct agent_ranks *rs, int member)
{
    for (int i = 0; i < rs->n; i++)
        if (rs->list[i]->assignment.member == member)
            return rs->list[i];
    return NULL;
}

bool agent_ranks_all_closed(const struct agent_ranks *rs)
{
    for (int i = 0; i < rs->n; i++)
        if (!rs->list[i]->closed)
            return false;
    return true;
}

void agent_ranks_signal(struct agent_ranks *rs, int signo)
{
    if (agent_ranks_starting(rs) && signo > 0 && signo < 64)
        rs->late_signals |= 1ULL << signo;
    for (int i = 0; i < rs->n; i++)
        rank_kill(rs->list[i], signo);
}

void agent_ranks_stop(struct agent_ranks *rs, int grace_ms)
{
    rs->stopping = true;
    for (int i = 0; i < rs->n; i++)
        rank_end(rs->list[i], grace_ms);
}

void agent_ranks_pause(struct agent_ranks *rs, bool pause)
{
    for (int i = 0; i < rs->n; i++)
        rank_pause(rs->list[i], pause);
}

/* Signals a rank's group before reaping the rank: until then its pid and process group id cannot be
 * reused. */
void agent_ranks_reap(struct agent_ranks *rs, pid_t *other)
{
    for (;;) {
        siginfo_t info = {0};
        int status;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return;
        if (*other == info.si_pid)
            *other = 0;
        struct rank *rank = NULL;
        for (int i = 0; i < rs->n && !rank; i++)
            if (rs->list[i]->pid == info.si_pid && !rs->list[i]->reaped)
                rank = rs->list[i];
        if (rank)
            rank_kill(rank, SIGTERM); /* ends what the rank left in its group */
        if (waitpid(info.si_pid, &status, WNOHANG) == info.si_pid && rank)
            rank_exited(rank, status);
    }
}
