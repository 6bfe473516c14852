/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn: see spawn.h. The child calls only async-signal-safe functions between fork and exec.
 */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/fd.h"

/* Where and why a child failed. */
struct failure {
    int where;
    int code; /* errno */
};

enum { FAIL_SETUP, FAIL_CWD, FAIL_EXEC };

static void child_signals(void)
{
    /* SIGHUP stays as it is: nohup ignores it on purpose. */
    const int ours[] = {SIGINT,  SIGTERM, SIGPIPE, SIGTSTP, SIGCHLD,
                        SIGUSR1, SIGUSR2, SIGQUIT, SIGXFSZ};
    sigset_t none;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        signal(ours[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Disables core dumps unless HVD_CORE_DUMPS asks for them: a dump delays the news of a death, and
 * ranks often die together. */
static void child_core(bool keep_core)
{
    struct rlimit core;
    if (keep_core || getrlimit(RLIMIT_CORE, &core) < 0)
        return;
    core.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &core);
}

static _Noreturn void child_fail(int report, int where)
{
    struct failure f = {where, errno};
    ssize_t put = write(report, &f, sizeof(f));
    (void)put;
    _exit(where == FAIL_EXEC && (f.code == ENOENT || f.code == ENOTDIR) ? 127 : 126);
}

static _Noreturn void child_run(const struct spawn_spec *spec, pid_t parent, int out, int err,
                                int report, bool keep_core)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    child_signals();
    child_core(keep_core);
    fd_limit_restore();
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        child_fail(report, FAIL_SETUP);
    if (null > 2)
        close(null);
    if (fcntl(spec->keep_fd, F_SETFD, 0) < 0)
        child_fail(report, FAIL_SETUP);
    if (spec->cpus)
        sched_setaffinity(0, sizeof(*spec->cpus), spec->cpus);
    if (chdir(spec->cwd) < 0)
        child_fail(report, FAIL_CWD);
    execvpe(spec->argv[0], spec->argv, spec->env);
    child_fail(report, FAIL_EXEC);
}

/* Does the program's file exist? Then ENOENT is about its interpreter or loader. */
static bool is_there(const char *program, const char *cwd)
{
    char path[4096];
    bool whole = program[0] == '/';
    int n = snprintf(path, sizeof(path), "%s%s%s", whole ? "" : cwd, whole ? "" : "/", program);
    return n < (int)sizeof(path) && access(path, F_OK) == 0;
}

static void explain(const struct failure *f, const char *program, const char *cwd,
                    struct spawn_failure *ret)
{
    const char *why = strerror(f->code);
    ret->code = 126;
    if (f->where == FAIL_CWD) {
        snprintf(ret->text, sizeof(ret->text), "cannot enter directory %s: %s", cwd, why);
        return;
    }
    if (f->where == FAIL_EXEC && (f->code == ENOENT || f->code == ENOTDIR)) {
        ret->code = 127;
        if (!strchr(program, '/')) {
            why = "command not found";
        } else if (is_there(program, cwd)) {
            ret->code = 126;
            why = "the interpreter or loader that it names does not exist";
        }
    }
    snprintf(ret->text, sizeof(ret->text), "cannot run %s: %s", *program ? program : "\"\"", why);
}

int spawn_result(int report, const char *program, const char *cwd, struct spawn_failure *ret)
{
    struct failure f;
    ssize_t got;
    do {
        got = read(report, &f, sizeof(f));
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return 1;
    if (got != (ssize_t)sizeof(f))
        return 0;
    explain(&f, program, cwd, ret);
    return -ENOEXEC;
}

static int make_pipe(int ends[2], struct err *err)
{
    return pipe2(ends, O_CLOEXEC) < 0 ? err_sys(err, errno, "pipe for a rank") : 0;
}

int spawn(const struct spawn_spec *spec, struct spawned *ret, struct err *err)
{
    int out[2] = {-1, -1}, errs[2] = {-1, -1}, report[2] = {-1, -1};
    bool keep_core = false;
    int rc = env_bool("CORE_DUMPS", false, &keep_core, err);
    rc = rc < 0 ? rc : make_pipe(out, err);
    rc = rc < 0 ? rc : make_pipe(errs, err);
    rc = rc < 0 ? rc : make_pipe(report, err);
    auto_close int out_r = out[0], out_w = out[1], err_r = errs[0], err_w = errs[1];
    auto_close int report_r = report[0], report_w = report[1];
    if (rc < 0)
        return rc;
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork");
    if (pid == 0)
        child_run(spec, parent, out_w, err_w, report_w, keep_core);
    setpgid(pid, pid); /* also done in the child: whichever is first */
    fd_set_nonblock(report_r);
    *ret = (struct spawned){pid, take_fd(&out_r), take_fd(&err_r), take_fd(&report_r)};
    return 0;
}
