/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_ranks: the ranks of an agent: their environment, start, output and end. See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/priority.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/program.h"

#define TAIL_LINES 10
#define EXEC_S     60 /* limit for exec: from a slow file server it takes seconds */
#define RANK_FDS   4  /* for each rank: two pipes, the control socket, a temporary descriptor */
#define SLICE_MS   20 /* longest time of starting ranks in one iteration of the loop */

extern char **environ;

/* ---- environment ---------------------------------------------------------------------------- */

/* Fills *ret with the NAME=value pairs that differ between ranks, under both prefixes. */
static int rank_variables(const struct agent *a, const struct assignment *assignment, int agent_fd,
                          char ***ret)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", assignment->member % a->welcome.size},
        {"SIZE", a->welcome.size},
        {"LOCAL_RANK", assignment->local_rank},
        {"LOCAL_SIZE", a->welcome.elastic ? a->welcome.slots : a->welcome.nassignments},
        {"CROSS_RANK", assignment->cross_rank},
        {"CROSS_SIZE", assignment->cross_size},
        {"START_TIMEOUT", a->config.start_timeout},
    };
    const char *prefixes[] = {"HVD_", "HOROVOD_"};
    size_t n = 0, nnumbers = sizeof(numbers) / sizeof(numbers[0]);
    char **list = calloc(2 * nnumbers + 6, sizeof(*list));
    int rc = list ? 0 : -1;
    for (size_t p = 0; p < 2 && rc >= 0; p++)
        for (size_t i = 0; i < nnumbers && rc >= 0; i++)
            rc = asprintf(&list[n++], "%s%s=%d", prefixes[p], numbers[i].name, numbers[i].value);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HVD_AGENT_FD=%d", agent_fd);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HVD_JOB=%s", a->welcome.job);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HOROVOD_HOSTNAME=%s", a->config.host);
    if (rc >= 0 && a->welcome.elastic)
        rc = asprintf(&list[n++], "HVD_ELASTIC=1");
    if (rc >= 0 && !getenv("PYTHONUNBUFFERED")) /* so that lines are shown when printed */
        rc = asprintf(&list[n++], "PYTHONUNBUFFERED=1");
    if (rc < 0) {
        strings_free(list);
        return -ENOMEM;
    }
    *ret = list;
    return 0;
}

static bool names_same(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* This process's environment with the rank's variables. Pass *ret_own to strings_free(), *ret to
 * free(). */
static int rank_environment(const struct agent *a, const struct assignment *assignment,
                            int agent_fd, char ***ret_own, char ***ret)
{
    char **own = NULL;
    int rc = rank_variables(a, assignment, agent_fd, &own);
    if (rc < 0)
        return rc;
    size_t n = 0, nown = strings_count(own);
    char **list = calloc(strings_count(environ) + nown + 1, sizeof(*list));
    if (!list) {
        strings_free(own);
        return -ENOMEM;
    }
    for (char **e = environ; *e; e++) {
        bool mine = false;
        for (size_t i = 0; i < nown && !mine; i++)
            mine = names_same(own[i], *e);
        if (!mine)
            list[n++] = *e;
    }
    memcpy(list + n, own, nown * sizeof(*own));
    *ret_own = own;
    *ret = list;
    return 0;
}

/* Sets the configuration's variables in this process, for all ranks; execvpe() uses the PATH among
 * them. */
static int apply_environment(const struct agent *a)
{
    for (char **e = a->config.env; e && *e; e++) {
        char *equals = strchr(*e, '=');
        if (!equals)
            continue;
        char *name = strndup(*e, (size_t)(equals - *e));
        int rc = name ? setenv(name, equals + 1, 1) : -1;
        free(name);
        if (rc < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Appends the agent's folder to PATH, so that ranks find hvd-doctor. */
static int extend_path(void)
{
    char here[4096], path[8192];
    const char *old = getenv("PATH");
    if (program_beside(here, sizeof(here), "hvd-agent", NULL) < 0)
        return 0;
    *strrchr(here, '/') = '\0';
    int n = snprintf(path, sizeof(path), "%s:%s", old && *old ? old : "/usr/bin:/bin", here);
    return n < (int)sizeof(path) ? setenv("PATH", path, 1) : 0;
}

/* ---- what ranks do -------------------------------------------------------------------------- */

static void on_output(void *arg, struct rank *rank, enum frame_stream stream, const void *data,
                      size_t n)
{
    struct agent *a = arg;
    struct buf frame = {0};
    if (a->config.pod) {
        agent_pod_print(a, rank, stream, data, n);
        return;
    }
    frame_put(&frame, (uint32_t)rank->assignment.member, stream, data, n);
    if (!frame.failed)
        agent_print(a, &frame);
    buf_fini(&frame);
}

void agent_pause_output(struct agent *a, bool pause)
{
    for (int i = 0; i < a->nranks; i++)
        rank_pause(a->ranks[i], pause);
}

static void on_exited(void *arg, struct rank *rank)
{
    struct agent *a = arg;
    bool early = rank->code == 0 && rank->hello && !rank->bye;
    struct report_item item = {.type = REPORT_EXITED,
                               .member = rank->assignment.member,
                               .pid = (int)rank->pid,
                               .code = rank->code};
    char name[64], text[512];
    rank->waiting = false;
    snprintf(item.text, sizeof(item.text), "%s", rank->text);
    tail_text(&rank->tail, TAIL_LINES, item.tail, sizeof(item.tail));
    outbox_report(&a->outbox, &item);
    agent_name(rank, name, sizeof(name));
    roster_end_text(name, a->config.host, (int)rank->pid, rank->code, early, rank->text, text,
                    sizeof(text));
    log_debug("%s", text);
    /* Tell the ranks of this host directly, without a round trip to the coordinator. */
    agent_record_end(a, rank->assignment.member, END_FINAL, early || rank->code != 0, rank->code,
                     text);
    agent_consider_cards(a);
    agent_pod_exited(a, rank);
}

static void on_closed(void *arg, struct rank *rank)
{
    (void)rank;
    agent_wake(arg);
}

static void on_started(void *arg, struct rank *rank)
{
    struct agent *a = arg;
    struct report_item item = {
        .type = REPORT_STARTED, .member = rank->assignment.member, .pid = (int)rank->pid};
    outbox_report(&a->outbox, &item);
}

static const struct rank_ops ops = {on_output, agent_on_frame, on_started, on_exited, on_closed};

/* ---- start and end -------------------------------------------------------------------------- */

/* exec has its own limit: in an elastic job start_timeout covers a joiner's wait for a boundary. */
static int exec_ms(const struct agent *a)
{
    return 1000 * (a->config.start_timeout < EXEC_S ? a->config.start_timeout : EXEC_S);
}

static int start_rank(struct agent *a, struct rank *rank, const struct assignment *assignment,
                      struct err *err)
{
    int child_fd;
    char **own = NULL, **env = NULL;
    int rc = rank_init(rank, &a->loop, &ops, a, assignment, &child_fd, err);
    if (rc < 0)
        return rc;
    rc = rank_environment(a, assignment, child_fd, &own, &env);
    if (rc < 0) {
        close(child_fd);
        return err_set(err, ENOMEM, "no memory for an environment");
    }
    struct rank_spec spec = {.argv = a->config.argv,
                             .env = env,
                             .cwd = a->cwd,
                             .exec_ms = exec_ms(a),
                             .cpus = binding_cpus(&a->binding, assignment->local_rank)};
    rc = rank_start(rank, &spec, child_fd, err);
    strings_free(own);
    free(env);
    return rc;
}

void agent_drop_rank(struct rank *rank)
{
    rank_fini(rank);
    free(rank);
}

int agent_add_rank(struct agent *a, const struct assignment *assignment, struct err *err)
{
    struct rank *rank = calloc(1, sizeof(*rank));
    struct rank **grown = realloc(a->ranks, ((size_t)a->nranks + 1) * sizeof(*grown));
    if (grown)
        a->ranks = grown;
    if (!rank || !grown) {
        free(rank);
        return err_set(err, ENOMEM, "no memory for a rank");
    }
    int rc = start_rank(a, rank, assignment, err);
    if (rc < 0) {
        agent_drop_rank(rank);
        return rc;
    }
    a->ranks[a->nranks++] = rank;
    if (a->config.report_bindings)
        fprintf(stderr, "rank %d on %s: %s\n", assignment->member, a->config.host,
                binding_text(&a->binding, assignment->local_rank));
    return 0;
}

/* The directory of the ranks. On another host it may not exist. */
static const char *choose_cwd(const struct agent *a)
{
    const char *home = getenv("HOME");
    if (!a->config.cwd_may_lack || access(a->config.cwd, X_OK) == 0)
        return a->config.cwd;
    log_warn("there is no directory %s here: ranks run in %s", a->config.cwd, home ? home : "/");
    return home ? home : "/";
}

bool agent_is_starting(const struct agent *a)
{
    return a->cwd && !a->stopping && a->nstarted < a->welcome.nassignments;
}

/* Starts ranks for SLICE_MS, then continues in the next iteration of the loop: in between the agent
 * serves hvdrun and the ranks that run. */
static void start_some(void *arg)
{
    struct agent *a = arg;
    struct err err;
    uint64_t end = deadline_in_ms(SLICE_MS);
    while (agent_is_starting(a)) {
        const struct assignment assignment = a->welcome.assignments[a->nstarted++];
        if (agent_add_rank(a, &assignment, &err) < 0) {
            agent_fail(a, &err);
            return;
        }
        for (int signo = 1; signo < 64; signo++) /* signals received before this rank was started */
            if (a->late_signals & 1ULL << signo)
                rank_kill(a->ranks[a->nranks - 1], signo);
        if (deadline_passed(end))
            break;
    }
    if (agent_is_starting(a)) {
        loop_timer_start(&a->loop, &a->start_timer, 0, start_some, a);
        return;
    }
    if (!a->config.pod) /* autogroup has no effect inside a pod's cgroup */
        priority_new_session();
    agent_wake(a);
}

int agent_start_ranks(struct agent *a, struct err *err)
{
    int n = a->welcome.elastic ? a->welcome.slots : a->welcome.nassignments;
    if (apply_environment(a) < 0 || extend_path() < 0)
        return err_set(err, ENOMEM, "no memory for %d ranks", n);
    int rc = fd_limit_need((size_t)n * RANK_FDS, err);
    if (rc < 0) {
        err_prefix(err, "%d ranks on host %s", n, a->config.host);
        return rc;
    }
    a->cwd = choose_cwd(a);
    rc = agent_open_lifelines(a, err);
    rc = rc < 0 ? rc : binding_init(&a->binding, a->config.bind_to, n, err);
    if (rc == 0)
        start_some(a);
    return rc;
}

void agent_signal_ranks(struct agent *a, int signo)
{
    if (agent_is_starting(a) && signo > 0 && signo < 64)
        a->late_signals |= 1ULL << signo;
    for (int i = 0; i < a->nranks; i++)
        rank_kill(a->ranks[i], signo);
}

void agent_stop_ranks(struct agent *a, int grace_ms)
{
    a->stopping = true;
    for (int i = 0; i < a->nranks; i++)
        rank_end(a->ranks[i], grace_ms);
}

/* Handles children that have ended. Signals a rank's group before reaping the rank: until then its
 * pid and process group id cannot be reused. */
void agent_reap(struct agent *a)
{
    for (;;) {
        siginfo_t info = {0};
        int status;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return;
        if (a->preflight.pid == info.si_pid)
            a->preflight.pid = 0;
        struct rank *rank = NULL;
        for (int i = 0; i < a->nranks && !rank; i++)
            if (a->ranks[i]->pid == info.si_pid && !a->ranks[i]->reaped)
                rank = a->ranks[i];
        if (rank)
            rank_kill(rank, SIGTERM); /* ends what the rank left in its group */
        if (waitpid(info.si_pid, &status, WNOHANG) == info.si_pid && rank)
            rank_exited(rank, status);
    }
}
