/* SPDX-License-Identifier: Apache-2.0
 *
 * discovery: see discovery.h.
 */
#include "agent/discovery.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

#define EVERY_MS 1000
#define LIMIT_MS 10000
#define TEXT_MAX (1u << 20)

int discovery_parse(const char *text, size_t len, int slots, struct hosts *hosts, struct err *err)
{
    struct hosts fresh = {0};
    const char *end = text + len, *next;
    int rc = 0;
    if (memchr(text, '\0', len))
        return err_set(err, EINVAL, "a NUL in it");
    for (int line = 1; text < end && rc == 0; line++, text = next) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        const char *comment = memchr(text, '#', (size_t)(stop - text));
        stop = comment ? comment : stop;
        while (text < stop && strchr(" \t\r", *text))
            text++;
        while (stop > text && strchr(" \t\r", stop[-1]))
            stop--;
        rc = stop > text ? hosts_add(&fresh, text, stop, slots, err) : 0;
        if (rc < 0)
            err_prefix(err, "line %d", line);
    }
    if (rc == 0 && fresh.n == 0)
        rc = err_set(err, EINVAL, "it names no host");
    if (rc < 0) {
        hosts_fini(&fresh);
        return rc;
    }
    hosts_fini(hosts);
    *hosts = fresh;
    return 0;
}

/* ---- one run -------------------------------------------------------------------------------- */

static _Noreturn void child_run(const char *script, pid_t parent, int out, bool quiet)
{
    sigset_t none;
    const int ours[] = {SIGPIPE, SIGTSTP, SIGXFSZ};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        signal(ours[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && (!quiet || dup2(null, 2) >= 0))
        execl(script, script, (char *)NULL);
    _exit(errno == ENOENT ? 127 : 126);
}

/* quiet: discard standard error, because an error that repeats each second is reported once. */
static int start_run(const char *script, bool quiet, pid_t *ret_pid, int *ret_out, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe for %s", script);
    auto_close int out_r = ends[0], out_w = ends[1];
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork");
    if (pid == 0)
        child_run(script, parent, out_w, quiet);
    setpgid(pid, pid); /* also done in the child: whichever is first */
    fd_set_nonblock(out_r);
    *ret_pid = pid;
    *ret_out = take_fd(&out_r);
    return 0;
}

/* Reads what is available, at most 64 times 4 KiB. Returns false at the end, after an error, or
 * when the text is too long. */
static bool read_some(int fd, struct buf *text)
{
    for (int i = 0; i < 64 && text->len <= TEXT_MAX; i++) {
        uint8_t *room = buf_reserve(text, 4096);
        ssize_t got = room ? read(fd, room, 4096) : -1;
        if (got <= 0)
            return got < 0 && room && (errno == EAGAIN || errno == EINTR);
        text->len += (size_t)got;
    }
    return text->len <= TEXT_MAX;
}

/* Turns the exit status and output of the host discovery script into hosts or an error. */
static int judge(const char *script, int status, bool timed_out, const struct buf *text, int slots,
                 struct hosts *hosts, struct err *err)
{
    int rc;
    if (timed_out)
        rc = err_set(err, ETIMEDOUT, "it did not end within %d s: killed", LIMIT_MS / 1000);
    else if (text->failed || text->len > TEXT_MAX)
        rc = err_set(err, EFBIG, "it prints more than %u bytes", TEXT_MAX);
    else if (WIFSIGNALED(status))
        rc = err_set(err, EIO, "it was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)
        rc = err_set(err, EIO, "it, or a program that it calls, cannot be run (exit code %d)",
                     WEXITSTATUS(status));
    else if (WEXITSTATUS(status))
        rc = err_set(err, EIO, "exit code %d", WEXITSTATUS(status));
    else
        rc = discovery_parse(text->len ? (const char *)text->data : "", text->len, slots, hosts,
                             err);
    return rc < 0 ? err_prefix(err, "host discovery script %s", script) : 0;
}

int discovery_first(const char *script, int slots, struct hosts *hosts, struct err *err)
{
    struct buf text = {0};
    uint64_t deadline = deadline_in_ms(LIMIT_MS);
    pid_t pid = 0;
    int out = -1, status = 0;
    bool timed_out = false;
    int rc = start_run(script, false, &pid, &out, err);
    if (rc < 0)
        return rc;
    struct pollfd wait = {.fd = out, .events = POLLIN};
    while (read_some(out, &text) && waitpid(pid, &status, WNOHANG) == 0) {
        timed_out = deadline_passed(deadline);
        if (timed_out)
            break;
        poll(&wait, 1, 50); /* then looks for the exit: a child may hold the pipe open */
    }
    while (!timed_out && text.len <= TEXT_MAX && waitpid(pid, &status, WNOHANG) == 0) {
        timed_out = deadline_passed(deadline);
        usleep(10000);
    }
    if (timed_out || text.len > TEXT_MAX) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    read_some(out, &text);
    close(out);
    rc = judge(script, status, timed_out, &text, slots, hosts, err);
    buf_fini(&text);
    return rc;
}

/* ---- each second ----------------------------------------------------------------------------- */

static const struct host *find(const struct hosts *hosts, const struct host *host)
{
    for (int i = 0; i < hosts->n; i++)
        if (strcmp(hosts->list[i].name, host->name) == 0)
            return &hosts->list[i];
    return NULL;
}

static bool same(const struct hosts *a, const struct hosts *b)
{
    bool equal = a->n == b->n;
    for (int i = 0; i < a->n && equal; i++) {
        const struct host *other = find(b, &a->list[i]);
        equal = other && other->slots == a->list[i].slots;
    }
    return equal;
}

static void on_next(void *arg);

static void close_run(struct discovery *d)
{
    loop_fd_stop(d->loop, &d->out_lfd);
    loop_timer_stop(d->loop, &d->limit);
    if (d->out >= 0)
        close(d->out);
    d->out = -1;
    d->pid = 0;
    d->timed_out = false;
    buf_reset(&d->text);
}

static void complain(struct discovery *d, const struct err *err)
{
    if (!d->troubled)
        d->cb(d->arg, NULL, err_text(err));
    d->troubled = true;
}

static void on_out(void *arg, uint32_t events)
{
    struct discovery *d = arg;
    (void)events;
    if (read_some(d->out, &d->text))
        return;
    loop_fd_stop(d->loop, &d->out_lfd); /* the process still has to exit */
    if (d->text.len > TEXT_MAX)
        kill(-d->pid, SIGKILL);
}

static void on_limit(void *arg)
{
    struct discovery *d = arg;
    d->timed_out = true;
    kill(-d->pid, SIGKILL);
}

static void on_next(void *arg)
{
    struct discovery *d = arg;
    struct err err = {0};
    int rc = start_run(d->script, true, &d->pid, &d->out, &err);
    if (rc == 0)
        rc = loop_fd_start(d->loop, &d->out_lfd, d->out, EPOLLIN, on_out, d);
    if (rc == 0) {
        loop_timer_start(d->loop, &d->limit, LIMIT_MS, on_limit, d);
        return;
    }
    if (d->pid > 0)
        kill(-d->pid, SIGKILL);
    close_run(d);
    if (!err.code)
        err_sys(&err, -rc, "%s", d->script);
    complain(d, &err);
    loop_timer_start(d->loop, &d->next, EVERY_MS, on_next, d);
}

bool discovery_reap(struct discovery *d, pid_t pid, int status)
{
    struct err err = {0};
    struct hosts hosts = {0};
    if (!d->pid || pid != d->pid)
        return false;
    read_some(d->out, &d->text);
    int rc = judge(d->script, status, d->timed_out, &d->text, d->slots, &hosts, &err);
    close_run(d);
    loop_timer_start(d->loop, &d->next, EVERY_MS, on_next, d);
    if (rc < 0) {
        complain(d, &err);
        return true;
    }
    d->troubled = false;
    bool news = !same(&hosts, &d->known);
    hosts_fini(&d->known);
    d->known = hosts;
    if (news)
        d->cb(d->arg, &d->known, NULL);
    return true;
}

int discovery_start(struct discovery *d, struct loop *loop, const char *script, int slots,
                    const struct hosts *known, discovery_f *cb, void *arg)
{
    size_t size = (size_t)known->n * sizeof(*known->list);
    *d = (struct discovery){
        .loop = loop, .script = script, .slots = slots, .cb = cb, .arg = arg, .out = -1};
    d->known.list = malloc(size ? size : 1);
    if (!d->known.list)
        return -ENOMEM;
    if (size)
        memcpy(d->known.list, known->list, size);
    d->known.n = known->n;
    loop_timer_start(loop, &d->next, EVERY_MS, on_next, d);
    return 0;
}

void discovery_stop(struct discovery *d)
{
    if (!d->loop)
        return;
    if (d->pid > 0)
        kill(-d->pid, SIGKILL);
    close_run(d);
    loop_timer_stop(d->loop, &d->next);
    hosts_fini(&d->known);
    buf_fini(&d->text);
    d->loop = NULL;
}
