/* SPDX-License-Identifier: Apache-2.0
 *
 * launch: see launch.h.
 */
#include "agent/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/reap.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/program.h"

#define WORDS_MAX 32
#define REAP_MS   1000

static int add_word(char **words, int *n, const char *word)
{
    if (*n == WORDS_MAX)
        return -E2BIG;
    words[*n] = strdup(word);
    return words[(*n)++] ? 0 : -ENOMEM;
}

/* Command line: the words of HVD_RSH_AGENT, the host, the agent. */
static int rsh_words(char **words, const char *rsh, const char *host, const char *agent)
{
    auto_free char *copy = strdup(rsh);
    char *save;
    int n = 0, rc = copy ? 0 : -ENOMEM;
    for (char *w = rc ? NULL : strtok_r(copy, " \t", &save); w && rc == 0;
         w = strtok_r(NULL, " \t", &save))
        rc = add_word(words, &n, w);
    rc = rc < 0 ? rc : add_word(words, &n, host);
    return rc < 0 ? rc : add_word(words, &n, agent);
}

/* The remote host has the agent at the same path or in PATH. The command runs under sh, whatever
 * the user's login shell is. */
static int ssh_words(char **words, const struct job *job, const char *host, const char *agent)
{
    char port[16], timeout[48];
    auto_free char *remote = NULL;
    int n = 0, rc = 0;
    if (asprintf(&remote,
                 "exec sh -c 'test -x \"$0\" && exec \"$0\"; "
                 "command -v hvd-agent >/dev/null && exec hvd-agent; "
                 "echo \"there is no hvd-agent: not at $0 and not in PATH\" >&2; exit 127' '%s'",
                 agent) < 0)
        return -ENOMEM;
    snprintf(port, sizeof(port), "%d", job->ssh_port);
    snprintf(timeout, sizeof(timeout), "ConnectTimeout=%d", job->start_timeout);
    const char *list[] = {"ssh",
                          "-T",
                          "-o",
                          "BatchMode=yes",
                          "-o",
                          timeout,
                          job->ssh_port ? "-p" : NULL,
                          job->ssh_port ? port : NULL,
                          job->ssh_identity ? "-i" : NULL,
                          job->ssh_identity,
                          host,
                          remote};
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && rc == 0; i++)
        rc = list[i] ? add_word(words, &n, list[i]) : 0;
    return rc;
}

static const char *rsh_agent(void)
{
    const char *rsh = getenv("HVD_RSH_AGENT");
    return rsh && rsh[strspn(rsh, " \t")] ? rsh : NULL;
}

const char *launch_program(const struct host *host)
{
    return host->local ? "hvd-agent" : rsh_agent() ? rsh_agent() : "ssh";
}

/* Writes the configuration to a memfd, which only this process and the child can read. */
static int config_fd(const struct agent_config *config, struct err *err)
{
    auto_free char *text = config_write(config);
    if (!text)
        return err_set(err, EINVAL, "a name in the job is not UTF-8, or memory is out");
    auto_close int fd = memfd_create("hvd-config", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "memfd");
    int rc = fd_write_full(fd, text, strlen(text), deadline_in_ms(5000));
    explicit_bzero(text, strlen(text));
    if (rc < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, rc < 0 ? -rc : errno, "memfd");
    return take_fd(&fd);
}

static _Noreturn void child_run(char **words, int in, int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGTSTP, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fd_limit_restore();
    if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0)
        execvp(words[0], words);
    dprintf(2, "cannot run %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static int start(struct launched *l, char **words, int in, struct err *err)
{
    int out[2], errs[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe for an agent");
    auto_close int out_r = out[0], out_w = out[1];
    if (pipe2(errs, O_CLOEXEC) < 0)
        return err_sys(err, errno, "pipe for an agent");
    auto_close int err_r = errs[0], err_w = errs[1];
    l->pid = fork();
    if (l->pid < 0) {
        l->pid = 0;
        return err_sys(err, errno, "fork");
    }
    if (l->pid == 0)
        child_run(words, in, out_w, err_w);
    fd_set_nonblock(out_r);
    fd_set_nonblock(err_r);
    l->out = take_fd(&out_r);
    l->err = take_fd(&err_r);
    return 0;
}

int launch(struct launched *l, const struct host *host, const struct job *job,
           const struct agent_config *config, struct err *err)
{
    char agent[4096];
    char *words[WORDS_MAX + 1] = {0};
    *l = (struct launched){.host = host, .out = -1, .err = -1};
    int rc = program_beside(agent, sizeof(agent), "hvd-agent", err);
    if (rc < 0)
        return rc;
    int n = 0;
    if (host->local)
        rc = add_word(words, &n, agent);
    else if (rsh_agent())
        rc = rsh_words(words, rsh_agent(), host->name, agent);
    else
        rc = ssh_words(words, job, host->name, agent);
    if (rc < 0)
        err_sys(err, -rc, "command line for host %s", host->name);
    auto_close int in = rc < 0 ? -1 : config_fd(config, err);
    if (rc == 0)
        rc = in < 0 ? in : start(l, words, in, err);
    for (int i = 0; i < WORDS_MAX; i++)
        free(words[i]);
    return rc;
}

void launch_last_message(const struct launched *l, char *dst, size_t size)
{
    const char *text = (const char *)l->messages.data;
    size_t end = l->messages.len;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        end--;
    size_t from = end;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    snprintf(dst, size, "%.*s", (int)(end - from), text ? text + from : "");
}

void launch_kill(struct launched *l, int signo)
{
    if (l->pid > 0 && !l->ended)
        kill(l->pid, signo);
}

void launch_fini(struct launched *l, struct loop *loop)
{
    loop_fd_stop(loop, &l->out_lfd);
    loop_fd_stop(loop, &l->err_lfd);
    loop_fd_stop(loop, &l->pid_lfd);
    if (l->out >= 0)
        close(l->out);
    if (l->err >= 0)
        close(l->err);
    l->out = l->err = -1;
    buf_fini(&l->frames);
    buf_fini(&l->messages);
}

/* A killed agent cannot end what its ranks started. Repeats for REAP_MS, because dying processes
 * may start more. */
void launch_reap_left(struct launched *l)
{
    if (!l->host->local || l->pid <= 0)
        return;
    if (!l->reap_until)
        l->reap_until = deadline_in_ms(REAP_MS);
    if (!deadline_passed(l->reap_until))
        reap_session(l->pid);
}
