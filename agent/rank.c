/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: see rank.h. Starting the process is in spawn.c.
 */
#include "agent/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/member/roster.h"

/* Processes left in a rank's group get SIGTERM at once, and SIGKILL after this. */
#define REST_GRACE_MS 1000
#define POLL_MS       20
#define COUNT_MS      5000 /* least time between two counts of rank_count_limits() */

static void on_ctl(void *arg, uint32_t events);

int rank_init(struct rank *rank, struct loop *loop, const struct rank_ops *ops, void *arg,
              const struct assignment *assignment, int *ret_child_fd, struct err *err)
{
    int pair[2];
    *rank = (struct rank){.loop = loop,
                          .ops = ops,
                          .arg = arg,
                          .assignment = *assignment,
                          .ctl_fd = -1,
                          .roster_rank = -1,
                          .report = -1};
    for (int i = 0; i < FRAME_STREAMS; i++)
        rank->streams[i] = (struct rank_stream){rank, (enum frame_stream)i, -1, {0}};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "control socket of rank %d", assignment->member);
    rank->ctl_fd = pair[0];
    ctl_init(&rank->ctl, pair[0]);
    int rc = loop_fd_start(loop, &rank->ctl_lfd, pair[0], EPOLLIN, on_ctl, rank);
    if (rc < 0) {
        close(pair[1]);
        return err_sys(err, -rc, "control socket of rank %d", assignment->member);
    }
    *ret_child_fd = pair[1];
    return 0;
}

/* ---- output --------------------------------------------------------------------------------- */

static void stream_close(struct rank_stream *st)
{
    if (st->fd < 0)
        return;
    loop_fd_stop(st->rank->loop, &st->lfd);
    close(st->fd);
    st->fd = -1;
}

/* One read. Returns true if there may be more. */
static bool stream_read(struct rank_stream *st)
{
    char data[FRAME_MAX];
    ssize_t got = read(st->fd, data, sizeof(data));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        stream_close(st);
        return false;
    }
    if (st->which == FRAME_STDERR)
        tail_put(&st->rank->tail, data, (size_t)got);
    st->rank->ops->output(st->rank->arg, st->rank, st->which, data, (size_t)got);
    return true;
}

static void check_closed(struct rank *rank);

static void on_stream(void *arg, uint32_t events)
{
    struct rank_stream *st = arg;
    struct rank *rank = st->rank;
    (void)events;
    stream_read(st);
    if (st->fd < 0)
        check_closed(rank);
}

void rank_pause(struct rank *rank, bool pause)
{
    for (int i = 0; i < FRAME_STREAMS; i++)
        if (rank->streams[i].fd >= 0)
            loop_fd_set(rank->loop, &rank->streams[i].lfd, pause ? 0 : EPOLLIN);
}

/* ---- control socket ------------------------------------------------------------------------- */

static void ctl_close(struct rank *rank)
{
    if (rank->ctl_fd < 0)
        return;
    loop_fd_stop(rank->loop, &rank->ctl_lfd);
    loop_timer_stop(rank->loop, &rank->again_timer);
    ctl_fini(&rank->ctl);
    close(rank->ctl_fd);
    rank->ctl_fd = -1;
}

static void take_report(struct rank *rank);

/* Handles all frames that have arrived, after reporting that the command runs. */
void rank_read_frames(struct rank *rank)
{
    take_report(rank);
    while (rank->ctl_fd >= 0) {
        struct ctl_frame frame = {0};
        int rc = ctl_recv(&rank->ctl, &frame);
        if (rc == 1)
            return;
        if (rc == 0) {
            rank->ops->frame(rank->arg, rank, &frame);
            continue;
        }
        if (rc == -EPROTO)
            log_warn("rank %d sent invalid data on its control socket, which was closed",
                     rank->assignment.member);
        ctl_close(rank);
    }
}

static void on_again(void *arg);

/* Handles rc, the result of ctl_send() or ctl_flush(). A closed socket is ignored here: frames that
 * the rank wrote before may still wait to be read. */
static void ctl_sent(struct rank *rank, int rc)
{
    char why[256];
    if (rank->ctl_fd < 0)
        return;
    if (rc == CTL_RETRY)
        loop_timer_start(rank->loop, &rank->again_timer, CTL_RETRY_MS, on_again, rank);
    if (rc >= 0) {
        loop_fd_set(rank->loop, &rank->ctl_lfd, EPOLLIN | (rc == 1 ? EPOLLOUT : 0u));
        return;
    }
    log_debug("rank %d: control socket: %s", rank->assignment.member, strerror(-rc));
    if (rc == -ECONNRESET || rank->reaped || rank->text[0])
        return;
    ctl_refused_text(rc, why, sizeof(why));
    snprintf(rank->text, sizeof(rank->text),
             "the shared descriptors could not be passed to this rank: %s", why);
    rank->code = 1;
    rank_end(rank, REST_GRACE_MS);
}

static void on_again(void *arg)
{
    struct rank *rank = arg;
    if (rank->ctl_fd >= 0)
        ctl_sent(rank, ctl_flush(&rank->ctl));
}

static void on_ctl(void *arg, uint32_t events)
{
    struct rank *rank = arg;
    if (events & EPOLLOUT)
        ctl_sent(rank, ctl_flush(&rank->ctl));
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rank_read_frames(rank);
}

void rank_send(struct rank *rank, enum ctl_type type, const struct buf *body, struct ctl_fds *fds)
{
    if (rank->ctl_fd < 0)
        return;
    int rc = ctl_send_shared(&rank->ctl, type, body, fds);
    ctl_sent(rank, rc < 0 ? rc : ctl_flush(&rank->ctl));
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Returns whether the rank's process group has ended: its leader was reaped and no process remains
 * in it. Another process group may then get the same id, so this one is not signalled any more. */
static bool group_has_ended(struct rank *rank)
{
    if (rank->reaped && !rank->group_ended)
        rank->group_ended = rank->pid <= 0 || (kill(-rank->pid, 0) < 0 && errno == ESRCH);
    return rank->group_ended;
}

void rank_kill(struct rank *rank, int signo)
{
    if (rank->pid > 0 && !group_has_ended(rank))
        kill(-rank->pid, signo);
}

static void on_end_timer(void *arg)
{
    struct rank *rank = arg;
    if (deadline_passed(rank->kill_at)) {
        rank_kill(rank, SIGKILL);
        /* A process that still holds the pipes has a session of its own; the agent ends that
         * process when the agent itself ends. */
        if (rank->reaped)
            for (int i = 0; i < FRAME_STREAMS; i++)
                stream_close(&rank->streams[i]);
    }
    loop_timer_start(rank->loop, &rank->end_timer, POLL_MS, on_end_timer, rank);
    check_closed(rank);
}

/* The process group got SIGTERM: SIGKILL follows after grace_ms. */
static void kill_later(struct rank *rank, int grace_ms)
{
    uint64_t kill_at = deadline_in_ms((uint64_t)grace_ms);
    if (!rank->kill_at || kill_at < rank->kill_at)
        rank->kill_at = kill_at;
    loop_timer_start(rank->loop, &rank->end_timer, POLL_MS, on_end_timer, rank);
}

void rank_end(struct rank *rank, int grace_ms)
{
    if (rank->closed || rank->pid <= 0)
        return;
    if (!rank->kill_at)
        rank_kill(rank, SIGTERM);
    kill_later(rank, grace_ms);
}

/* Reports closed once the process, its group and its pipes have ended. */
static void check_closed(struct rank *rank)
{
    if (!rank->reaped || rank->closed || !group_has_ended(rank))
        return;
    for (int i = 0; i < FRAME_STREAMS; i++)
        if (rank->streams[i].fd >= 0)
            return;
    loop_timer_stop(rank->loop, &rank->end_timer);
    rank->closed = true;
    rank->ops->closed(rank->arg, rank);
}

/* ---- what the rank has said ------------------------------------------------------------------ */

static void on_hello_end(void *arg, uint32_t events)
{
    struct rank *rank = arg;
    (void)events;
    loop_fd_stop(rank->loop, &rank->hello_lfd);
    rank->ops->hello_ended(rank->arg, rank);
}

void rank_count_limits(struct rank *rank)
{
    struct set_report *sets = &rank->progress.sets;
    struct fd_use use = {0};
    struct memory memory = {0}; /* the agent's: its ranks are in the same container */
    uint64_t now = clock_ns();
    bool known = rank->counted_at && now - rank->counted_at < COUNT_MS * CLOCK_MS;
    if (sets->n > 0 && known)
        return;
    rank->counted_at = sets->n > 0 ? now : 0;
    if (sets->n > 0) {
        (void)fd_count(rank->hello_pid, CTL_MEMFD, &use); /* 0: not known */
        (void)memory_read("", &memory);
    }
    sets->descriptors = use.open;
    sets->descriptors_max = use.most;
    sets->segments = use.memory;
    sets->memory_left = memory.left;
    sets->memory_limit = memory.limit;
}

void rank_watch_hello(struct rank *rank, int pid)
{
    loop_fd_stop(rank->loop, &rank->hello_lfd);
    rank->hello_pid = pid;
    if (pid > 1 && pid != rank->pid && getpgid(pid) == rank->pid)
        loop_pid_start(rank->loop, &rank->hello_lfd, pid, on_hello_end, rank);
}

bool rank_in_epoch(const struct rank *rank)
{
    return !rank->reaped && !rank->dead && rank->hello && !rank->waiting && !rank->arrived &&
           !rank->bye;
}

void rank_name(const struct rank *rank, char *dst, size_t size)
{
    int member = rank->assignment.member;
    roster_name(rank->roster_rank >= 0 ? rank->roster_rank : member, member, dst, size);
}

/* ---- exec ------------------------------------------------------------------------------------ */

static void report_close(struct rank *rank)
{
    if (rank->report < 0)
        return;
    loop_fd_stop(rank->loop, &rank->report_lfd);
    loop_timer_stop(rank->loop, &rank->exec_timer);
    close(rank->report);
    rank->report = -1;
}

/* Reads whether the command runs, if that is known. */
static void take_report(struct rank *rank)
{
    struct spawn_failure failure;
    if (rank->report < 0)
        return;
    int rc = spawn_result(rank->report, rank->program, rank->cwd, &failure);
    if (rc == 1)
        return;
    report_close(rank);
    if (rank->text[0])
        return;
    if (rc < 0) {
        rank->code = failure.code;
        snprintf(rank->text, sizeof(rank->text), "%s", failure.text);
        return;
    }
    rank->ops->started(rank->arg, rank);
}

static void on_report(void *arg, uint32_t events)
{
    (void)events;
    take_report(arg);
}

/* SIGKILL does not end a process that the kernel holds in exec: reports its end all the same. */
static void on_exec_stuck(void *arg)
{
    rank_exited(arg, 0);
}

static void on_exec_late(void *arg)
{
    struct rank *rank = arg;
    rank->code = 126;
    snprintf(rank->text, sizeof(rank->text),
             "%s has not begun to run within %d s: the kernel waits in exec, for a file server "
             "perhaps; look at the file system of the program and of directory %s",
             rank->program, rank->exec_ms / 1000, rank->cwd);
    rank_end(rank, 0);
    loop_timer_start(rank->loop, &rank->exec_timer, REST_GRACE_MS, on_exec_stuck, rank);
}

void rank_exited(struct rank *rank, int status)
{
    if (rank->reaped)
        return;
    take_report(rank);
    report_close(rank);
    rank->reaped = true;
    if (!rank->text[0])
        rank->code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    /* Handle a waiting BYE and the last output before the end is reported. At most 64 reads,
     * because a child of the rank may go on writing. */
    rank_read_frames(rank);
    loop_fd_stop(rank->loop, &rank->hello_lfd);
    rank_lifeline_stop(&rank->lifeline);
    for (int i = 0; i < FRAME_STREAMS; i++)
        for (int n = 0; n < 64 && rank->streams[i].fd >= 0; n++)
            if (!stream_read(&rank->streams[i]))
                break;
    ctl_close(rank);
    kill_later(rank, REST_GRACE_MS); /* the caller has sent SIGTERM */
    rank->ops->exited(rank->arg, rank);
    check_closed(rank);
}

void rank_fini(struct rank *rank)
{
    loop_timer_stop(rank->loop, &rank->end_timer);
    loop_timer_stop(rank->loop, &rank->leave_timer);
    loop_fd_stop(rank->loop, &rank->hello_lfd);
    rank_lifeline_stop(&rank->lifeline);
    report_close(rank);
    for (int i = 0; i < FRAME_STREAMS; i++)
        stream_close(&rank->streams[i]);
    ctl_close(rank);
    buf_fini(&rank->card);
}

/* ---- start ---------------------------------------------------------------------------------- */

int rank_start(struct rank *rank, const struct rank_spec *spec, int child_fd, struct err *err)
{
    struct spawned child;
    auto_close int ctl_fd = child_fd;
    struct spawn_spec s = {.argv = spec->argv,
                           .env = spec->env,
                           .cwd = spec->cwd,
                           .cpus = spec->cpus,
                           .keep_fd = ctl_fd};
    int rc = spawn(&s, &child, err);
    if (rc < 0)
        return rc;
    rank->pid = child.pid;
    rank->program = spec->argv[0];
    rank->cwd = spec->cwd;
    rank->exec_ms = spec->exec_ms;
    rank->report = child.report;
    rank->streams[FRAME_STDOUT].fd = child.out;
    rank->streams[FRAME_STDERR].fd = child.err;
    for (int i = 0; i < FRAME_STREAMS; i++) {
        struct rank_stream *st = &rank->streams[i];
        fd_set_nonblock(st->fd);
        rc = loop_fd_start(rank->loop, &st->lfd, st->fd, EPOLLIN, on_stream, st);
        if (rc < 0)
            return err_sys(err, -rc, "output pipe of rank %d", rank->assignment.member);
    }
    rc = loop_fd_start(rank->loop, &rank->report_lfd, rank->report, EPOLLIN, on_report, rank);
    if (rc < 0)
        return err_sys(err, -rc, "start of rank %d", rank->assignment.member);
    loop_timer_start(rank->loop, &rank->exec_timer, (uint64_t)rank->exec_ms, on_exec_late, rank);
    return 0;
}
