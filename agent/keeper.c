/* SPDX-License-Identifier: Apache-2.0
 *
 * keeper: see keeper.h.
 */
#include "agent/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/reap.h"

#define GRACE_MS 500 /* between SIGTERM and SIGKILL for processes that ranks started */

static pid_t keeper; /* the keeper of this agent; 0: none */

/* Closes all descriptors: the agent's pipes must end with the agent. */
static void drop_files(void)
{
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    syscall(SYS_close_range, 3U, ~0U, 0U);
}

/* The agent's wait status; -1: it still runs. */
static int take_status(pid_t agent)
{
    int status, ret = -1;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == agent)
            ret = status;
    return ret;
}

static _Noreturn void end_like(int status)
{
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    const struct rlimit none = {0, 0};
    sigset_t all;
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    raise(WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

static _Noreturn void keep(pid_t agent, const sigset_t *set)
{
    int status;
    drop_files();
    while ((status = take_status(agent)) < 0) {
        int signo = sigwaitinfo(set, NULL);
        if (signo > 0 && signo != SIGCHLD)
            kill(agent, signo);
    }
    reap_rest(GRACE_MS);
    end_like(status);
}

int keeper_fork(bool local, struct err *err)
{
    sigset_t set, before;
    pid_t parent = getpid();
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    reap_adopt();
    pid_t pid = fork();
    if (pid > 0)
        keep(pid, &set);
    int error = pid < 0 ? errno : 0;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, local ? SIGKILL : SIGINT);
        if (getppid() != parent)
            _exit(1);
        keeper = parent;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return error ? err_sys(err, error, "fork") : 0;
}

int keeper_pid(void)
{
    return (int)(keeper ? keeper : getpid());
}
