/* SPDX-License-Identifier: Apache-2.0
 *
 * preflight: see preflight.h. diagnostics/README.md describes the output of hvd-doctor --jsonl.
 */
#include "agent/preflight.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/program.h"
#include "core/json/json.h"

#define LIMIT_MS       15000 /* longer than the doctor's own limit of 10 s */
#define LINE_MAX_BYTES (64u << 10)
#define NICE           10
#define LEVEL          1 /* only inspects the machine */

/* ---- its results --------------------------------------------------------------------------- */

const char *finding_fix(const char *const fixes[FIX_PLACES])
{
    struct machine m;
    enum fix_place here = FIX_HOST;
    if (machine_open_live(&m, NULL) == 0) {
        here = fix_place_of(&m);
        machine_close(&m);
    }
    if (fixes[here])
        return fixes[here];
    for (int i = 0; i < FIX_PLACES; i++)
        if (fixes[i])
            return fixes[i];
    return "";
}

static const char *choose_fix(json_t *list)
{
    const char *fixes[FIX_PLACES] = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = "", *text = "";
        if (json_expect(json_array_get(list, i), "fix", NULL, "{s:s, s:s}", "place", &name, "text",
                        &text) < 0)
            continue;
        for (int place = 0; place < FIX_PLACES; place++)
            if (strcmp(name, fix_place_name((enum fix_place)place)) == 0)
                fixes[place] = text;
    }
    return finding_fix(fixes);
}

static void keep(struct preflight *p, const char *id, const char *group, enum check_status status)
{
    if (p->nresults == p->cap) {
        int cap = p->cap ? p->cap * 2 : 64;
        struct preflight_result *grown = realloc(p->results, (size_t)cap * sizeof(*grown));
        if (!grown)
            return;
        p->results = grown;
        p->cap = cap;
    }
    struct preflight_result *r = &p->results[p->nresults++];
    snprintf(r->id, sizeof(r->id), "%s", id);
    snprintf(r->group, sizeof(r->group), "%s", group);
    r->status = (int)status;
}

static void on_check(struct preflight *p, json_t *j)
{
    const char *id = "", *code = "", *group = "", *word = "", *summary = "";
    json_t *fixes = NULL, *silenced = NULL;
    if (json_expect(j, "check", NULL, "{s:s, s:s, s:s, s:s, s:s, s?o, s?o}", "id", &id, "code",
                    &code, "group", &group, "status", &word, "summary", &summary, "fix", &fixes,
                    "silenced", &silenced) < 0)
        return;
    enum check_status status = CHECK_PASS;
    while (status < CHECK_ERROR && strcmp(word, check_status_name(status)) != 0)
        status++;
    keep(p, id, group, status);
    if ((status != CHECK_WARN && status != CHECK_FAIL) || json_is_string(silenced))
        return;
    struct finding f = {.source = "preflight",
                        .status = status == CHECK_FAIL ? FINDING_FAIL : FINDING_WARN};
    snprintf(f.id, sizeof(f.id), "%s", id);
    snprintf(f.code, sizeof(f.code), "%s", code);
    snprintf(f.summary, sizeof(f.summary), "%s", summary);
    snprintf(f.fix, sizeof(f.fix), "%s", choose_fix(fixes));
    p->found(p->arg, &f);
}

static void on_line(struct preflight *p, const char *line, size_t len)
{
    const char *type = "";
    auto_json json_t *j = NULL;
    if (json_read(line, len, "hvd-doctor", &j, NULL) < 0 ||
        json_expect(j, "hvd-doctor", NULL, "{s:s}", "type", &type) < 0)
        return;
    if (strcmp(type, "check") == 0)
        on_check(p, j);
    if (strcmp(type, "report") == 0)
        p->complete = true;
}

static void take_lines(struct preflight *p)
{
    size_t from = 0;
    const char *text = (const char *)p->text.data, *end;
    while (p->text.len > from && (end = memchr(text + from, '\n', p->text.len - from))) {
        on_line(p, text + from, (size_t)(end - text) - from);
        from = (size_t)(end - text) + 1;
    }
    buf_consume(&p->text, from);
    if (p->text.len > LINE_MAX_BYTES)
        buf_reset(&p->text);
}

/* ---- process ------------------------------------------------------------------------------- */

static void stop(struct preflight *p)
{
    if (!p->running)
        return;
    p->running = false;
    loop_timer_stop(p->loop, &p->limit);
    loop_fd_stop(p->loop, &p->lfd);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    if (!p->complete && p->pid > 0)
        kill(p->pid, SIGKILL);
    buf_fini(&p->text);
}

static void finish(struct preflight *p, const char *trouble)
{
    stop(p);
    p->done(p->arg, trouble);
}

static void on_output(void *arg, uint32_t events)
{
    struct preflight *p = arg;
    uint8_t *room = buf_reserve(&p->text, 4096);
    ssize_t got = room ? read(p->fd, room, 4096) : 0;
    (void)events;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        p->text.len += (size_t)got;
        take_lines(p);
        return;
    }
    finish(p, p->complete ? NULL : "hvd-doctor ended before it had looked at everything");
}

static void on_limit(void *arg)
{
    finish(arg, "hvd-doctor did not end within 15 s");
}

static void on_not_started(void *arg)
{
    struct preflight *p = arg;
    finish(p, p->not_started);
}

static _Noreturn void child_run(const char *path, char *const *words, int out, pid_t parent)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, NICE);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(null, 2) >= 0)
        execv(path, words);
    _exit(127);
}

static int start_process(struct preflight *p, const char *path, int level, int ranks,
                         int local_ranks)
{
    char nranks[16], nlocal[16], nlevel[16];
    int ends[2];
    snprintf(nlevel, sizeof(nlevel), "%d", level > 0 ? level : LEVEL);
    snprintf(nranks, sizeof(nranks), "%d", ranks);
    snprintf(nlocal, sizeof(nlocal), "%d", local_ranks);
    char *words[] = {(char *)"hvd-doctor",
                     (char *)"check",
                     (char *)"--jsonl",
                     (char *)"--level",
                     nlevel,
                     (char *)"--ranks",
                     nranks,
                     (char *)"--local-ranks",
                     nlocal,
                     NULL};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    auto_close int in = ends[0], out = ends[1];
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid < 0)
        return -errno;
    if (p->pid == 0)
        child_run(path, words, out, parent);
    fd_set_nonblock(in);
    p->fd = take_fd(&in);
    return loop_fd_start(p->loop, &p->lfd, p->fd, EPOLLIN, on_output, p);
}

void preflight_start(struct preflight *p, struct loop *loop, int level, int ranks, int local_ranks)
{
    char path[4096];
    struct err err;
    p->loop = loop;
    p->fd = -1;
    p->running = true;
    int rc = program_beside(path, sizeof(path), "hvd-doctor", &err);
    snprintf(p->not_started, sizeof(p->not_started), "there is no hvd-doctor beside hvd-agent");
    if (rc == 0) {
        rc = start_process(p, path, level, ranks, local_ranks);
        snprintf(p->not_started, sizeof(p->not_started), "hvd-doctor could not be started: %s",
                 strerror(-rc));
    }
    if (rc < 0)
        loop_timer_start(loop, &p->limit, 0, on_not_started, p);
    else
        loop_timer_start(loop, &p->limit, LIMIT_MS, on_limit, p);
}

void preflight_fini(struct preflight *p)
{
    stop(p);
    free(p->results);
    p->results = NULL;
    p->nresults = p->cap = 0;
}
