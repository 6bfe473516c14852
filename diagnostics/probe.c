/* SPDX-License-Identifier: Apache-2.0
 *
 * probe: see probe.h. The parent's side is one poll loop over the pipes and pidfds of all children.
 */
#include "diagnostics/probe.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/program.h"

#define AT_ONCE   48  /* children that run at the same time */
#define LINGER_MS 100 /* ms to wait for a child after SIGKILL */

/* One line for each file of probes/. */
/* clang-format off */
static const struct probe_table *const tables[] = {
    &probes_system,
    &probes_kmsg,
    &probes_sandbox,
    &probes_procs,
    &probes_shm,
    &probes_storage,
    &probes_network,
    &probes_dns,
    &probes_infiniband,
    &probes_kubernetes,
    &probes_active,
    &probes_jobs,
    &probes_prober,
    NULL,
};
/* clang-format on */

struct child {
    const struct probe *probe;
    pid_t pid;
    int pipe, pidfd; /* -1: closed */
    uint64_t start, deadline;
    struct buf text;
    int status; /* from waitpid(), once ended is set */
    bool ended, late;
};

const struct probe *probe_find(const char *name)
{
    for (size_t t = 0; tables[t]; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            if (strcmp(tables[t]->probes[i].name, name) == 0)
                return &tables[t]->probes[i];
        }
    }
    return NULL;
}

/* ---- in the child ---- */

static void settle(int out)
{
    sigset_t none;
    const struct rlimit no_core = {0, 0};
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
        _exit(EIO);
}

/* Runs hvd-probe: setting->prober, else the one in this program's folder. */
static _Noreturn void exec_prober(const char *name, const struct setting *s)
{
    char path[PATH_MAX], level[16];
    int rc;
    if (s->prober)
        snprintf(path, sizeof(path), "%s", s->prober);
    else if ((rc = program_beside(path, sizeof(path), "hvd-probe", NULL)) < 0)
        _exit(-rc);
    snprintf(level, sizeof(level), "%d", s->level);
    execl(path, "hvd-probe", name, level, (char *)NULL);
    _exit(errno);
}

static void run_child(const struct probe *p, const struct machine *m, const struct setting *s,
                      int out, pid_t parent)
{
    struct buf text = {0};
    settle(out);
    if (getppid() != parent)
        _exit(ESRCH);
    if (!p->run)
        exec_prober(p->name, s);
    int rc = p->run(&text, m, s);
    if (fd_write_full(1, text.data, text.len, UINT64_MAX) < 0)
        _exit(EPIPE);
    _exit(rc < 0 ? -rc : 0);
}

/* ---- in the parent ---- */

static int start(struct child *c, const struct probe *p, const struct machine *m,
                 const struct setting *s, uint64_t deadline)
{
    int ends[2];
    *c = (struct child){.probe = p, .pipe = -1, .pidfd = -1, .start = clock_ns()};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0)
        run_child(p, m, s, ends[1], parent);
    int rc = c->pid < 0 ? -errno : 0;
    close(ends[1]);
    if (rc < 0) {
        close(ends[0]);
        return rc;
    }
    setpgid(c->pid, c->pid);
    c->pipe = ends[0];
    fd_set_nonblock(c->pipe);
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    c->deadline = deadline;
    if (p->ms && c->start + (uint64_t)p->ms * CLOCK_MS < deadline)
        c->deadline = c->start + (uint64_t)p->ms * CLOCK_MS;
    return 0;
}

static void read_text(struct child *c)
{
    for (;;) {
        if (c->text.len >= ANSWER_MAX) {
            close(take_fd(&c->pipe));
            return;
        }
        void *dst = buf_reserve(&c->text, 4096);
        ssize_t n = dst ? read(c->pipe, dst, 4096) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close(take_fd(&c->pipe));
            return;
        }
        c->text.len += (size_t)n;
    }
}

static void look(struct child *c)
{
    if (!c->ended && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
        c->ended = true;
}

static bool done(const struct child *c)
{
    return c->ended && c->pipe < 0;
}

/* Kills the child's process group: a probe may have children of its own. */
static void stop(struct child *c)
{
    c->late = true;
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
    c->deadline = deadline_in_ms(LINGER_MS);
}

/* Reads the rest of the answer and closes the descriptors. */
static void finish(struct child *c)
{
    if (c->pipe >= 0)
        read_text(c);
    if (c->pipe >= 0)
        close(take_fd(&c->pipe));
    if (c->pidfd >= 0)
        close(take_fd(&c->pidfd));
}

static void wait_some(struct child *children, size_t n)
{
    struct pollfd fds[2 * AT_ONCE];
    uint64_t deadline = UINT64_MAX;
    nfds_t used = 0;
    bool blind = false;
    for (size_t i = 0; i < n; i++) {
        struct child *c = &children[i];
        if (c->deadline < deadline)
            deadline = c->deadline;
        if (c->pipe >= 0)
            fds[used++] = (struct pollfd){.fd = c->pipe, .events = POLLIN};
        if (!c->ended && c->pidfd >= 0)
            fds[used++] = (struct pollfd){.fd = c->pidfd, .events = POLLIN};
        blind |= !c->ended && c->pidfd < 0;
    }
    int ms = deadline_poll_ms(deadline);
    if (blind &&
        (ms < 0 || ms > 5)) /* without pidfd_open (old kernel) the end of a child is polled for */
        ms = 5;
    poll(fds, used, ms);
    for (size_t i = 0; i < n; i++) {
        if (children[i].pipe >= 0)
            read_text(&children[i]);
        look(&children[i]);
        /* The answer of an ended child is complete, even if another process still holds the pipe
         * open. */
        if (children[i].ended)
            finish(&children[i]);
    }
}

static void keep_answer(struct machine *m, struct child *c)
{
    struct machine_answer *a = &m->answers[m->nanswers];
    a->probe = strdup(c->probe->name);
    if (!a->probe)
        return;
    answer_parse(&a->answer, (const char *)c->text.data, c->text.len);
    a->answer.ms = (uint32_t)((clock_ns() - c->start) / CLOCK_MS);
    if (c->late) {
        a->answer.state = ANSWER_TIMEOUT;
        a->answer.detail = (int)a->answer.ms;
    } else if (WIFSIGNALED(c->status)) {
        a->answer.state = ANSWER_CRASHED;
        a->answer.detail = WTERMSIG(c->status);
    } else if (WEXITSTATUS(c->status)) {
        a->answer.state = ANSWER_FAILED;
        a->answer.detail = WEXITSTATUS(c->status);
    }
    m->nanswers++;
}

/* Removes children that have ended or are overdue from the list; returns how many remain. */
static size_t sweep(struct machine *m, struct child *children, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        struct child *c = &children[i];
        if (!done(c) && deadline_passed(c->deadline) && !c->late)
            stop(c);
        if (!done(c) && !(c->late && deadline_passed(c->deadline))) {
            children[left++] = *c;
            continue;
        }
        finish(c);
        kill(-c->pid, SIGKILL); /* a grandchild may still run */
        keep_answer(m, c);
        buf_fini(&c->text);
    }
    return left;
}

static void refuse(struct machine *m, const struct probe *p, int rc)
{
    struct machine_answer *a = &m->answers[m->nanswers];
    a->probe = strdup(p->name);
    if (!a->probe)
        return;
    a->answer = (struct answer){.state = ANSWER_FAILED, .detail = -rc};
    m->nanswers++;
}

/* Runs the probes whose alone flag has this value, up to at_once at a time. */
static void ask_some(struct machine *m, const struct probe *const *probes, size_t n,
                     const struct setting *s, bool alone)
{
    uint64_t deadline = deadline_in_ms((uint64_t)s->timeout_ms);
    struct child children[AT_ONCE];
    size_t running = 0, next = 0, at_once = alone ? 1 : AT_ONCE;
    while (next < n || running) {
        while (next < n && running < at_once) {
            const struct probe *p = probes[next++];
            if (p->alone != alone)
                continue;
            int rc = start(&children[running], p, m, s, deadline);
            if (rc < 0)
                refuse(m, p, rc);
            else
                running++;
        }
        if (running)
            wait_some(children, running);
        running = sweep(m, children, running);
    }
}

static bool asked(const struct machine *m, const char *name)
{
    return machine_answer(m, name)->state != ANSWER_ABSENT;
}

int probe_run(struct machine *m, const struct probe *const *probes, size_t n,
              const struct setting *s, struct err *err)
{
    struct machine_answer *grown =
        reallocarray(m->answers, m->nanswers + n + 1, sizeof(*m->answers));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for %zu answers", n);
    m->answers = grown;
    ask_some(m, probes, n, s, false);
    ask_some(m, probes, n, s, true);
    return 0;
}

int probe_ask(struct machine *m, const char *const *names, size_t n, const struct setting *s,
              struct err *err)
{
    auto_free const struct probe **probes = calloc(n + 1, sizeof(*probes));
    size_t count = 0;
    if (!probes)
        return err_set(err, ENOMEM, "no memory for %zu probes", n);
    for (size_t i = 0; i < n; i++) {
        const struct probe *p = probe_find(names[i]);
        if (!p)
            return err_set(err, ENOENT, "no probe \"%s\"", names[i]);
        if (p->level <= s->level && !asked(m, names[i]))
            probes[count++] = p;
    }
    return probe_run(m, probes, count, s, err);
}
