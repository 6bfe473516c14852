/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_lifelines: whole elastic jobs under hvdrun. The ranks are this program, which speaks the
 * control frames itself. If one rank dies or is stopped, the survivors are told of the loss, with
 * the reason that its lifeline gave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/fd.h"
#include "core/base/lifeline.h"
#include "tests/harness/robust.h"

enum { RANKS = 3, VICTIM = RANKS - 1, WAIT_MS = 60000 };

/* ---- a rank --------------------------------------------------------------------------------- */

static void hello(struct ctl *ctl)
{
    struct buf body = {0};
    buf_put_u16(&body, CTL_VERSION);
    buf_put_u32(&body, (uint32_t)getpid());
    buf_put_u8(&body, CTL_JOIN);
    buf_put_u32(&body, 0);
    buf_put(&body, "card", 4);
    ctl_send(ctl, CTL_HELLO, &body, NULL, 0);
    buf_fini(&body);
}

static void fill_memory(size_t bytes)
{
    if (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
             0) == MAP_FAILED)
        _exit(20);
}

/* Leaves as libhvd does: releases the lifeline before BYE, so that the exit of this process is
 * not reported as a death. */
static _Noreturn void leave(struct ctl *ctl)
{
    struct buf body = {0};
    lifeline_release();
    buf_put_u32(&body, 0);
    buf_put_u64(&body, 0);
    ctl_send(ctl, CTL_BYE, &body, NULL, 0);
    buf_fini(&body);
    exit(0);
}

static void on_lifeline(const struct ctl_frame *frame)
{
    struct err err;
    if (frame->nfds != 1 || lifeline_hold(frame->fds[0], &err) < 0)
        _exit(21);
    close(frame->fds[0]);
}

/* how: what the victim does after the roster. "die": dies by SIGKILL with 1 GiB of memory.
 * "stop": stops itself by SIGSTOP. "exit": exits with 0 without BYE. */
static int rank_main(const char *how)
{
    struct ctl ctl;
    struct ctl_frame frame;
    int member = atoi(getenv("HVD_RANK"));
    ctl_init(&ctl, atoi(getenv("HVD_AGENT_FD")));
    if (member == VICTIM && strcmp(how, "die") == 0)
        fill_memory((size_t)1 << 30);
    hello(&ctl);
    while (ctl_wait(&ctl, &frame, deadline_in_ms(WAIT_MS)) == 0) {
        if (frame.type == CTL_LIFELINE) {
            on_lifeline(&frame);
        } else if (frame.type == CTL_ROSTER) {
            printf("rank %d: roster, lifeline %s\n", member, lifeline_is_held() ? "held" : "none");
            fflush(stdout);
            if (member == VICTIM && strcmp(how, "exit") == 0)
                exit(0);
            if (member == VICTIM)
                raise(strcmp(how, "die") == 0 ? SIGKILL : SIGSTOP);
        } else if (frame.type == CTL_LOST) {
            printf("rank %d: lost: %.*s\n", member, (int)(frame.len - 8),
                   (const char *)frame.body + 8);
            leave(&ctl);
        }
    }
    return 22;
}

/* ---- the job -------------------------------------------------------------------------------- */

/* Writes the paths of this program, BUILD/tests/unit/agent/test_agent_lifelines, and of
 * BUILD/hvdrun. */
static void find_hvdrun(char *self, char *hvdrun, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", self, size - 1);
    assert_true(n > 0);
    self[n] = '\0';
    memcpy(hvdrun, self, (size_t)n + 1);
    for (int i = 0; i < 4; i++)
        *strrchr(hvdrun, '/') = '\0';
    strcat(hvdrun, "/hvdrun");
}

/* Runs hvdrun to its end, at most WAIT_MS. Writes its output to text. Returns its exit code or
 * -signal. */
static int run_job(const char *how, char *text, size_t size)
{
    char self[4096], hvdrun[4096];
    int pipes[2], status = -1;
    size_t len = 0;
    ssize_t got;
    find_hvdrun(self, hvdrun, sizeof(self) - 10);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipes[1], 1);
        dup2(pipes[1], 2);
        alarm(WAIT_MS / 1000); /* hvdrun ends its ranks when SIGALRM ends it */
        execl(hvdrun, "hvdrun", "-np", "3", "--min-np", "1", "--doctor=off", self, "rank", how,
              (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    while (len < size - 1 && (got = read(pipes[0], text + len, size - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Both survivors are told that rank 2 is lost, and the reason contains these words. */
static void expect(const char *how, const char *words)
{
    static char text[65536];
    char want[256];
    int code = run_job(how, text, sizeof(text)), found = 0;
    for (int i = 0; i < RANKS; i++) {
        snprintf(want, sizeof(want), "rank %d: roster, lifeline held", i);
        if (!strstr(text, want))
            fail_msg("no \"%s\" in:\n%s", want, text);
    }
    for (const char *line = text; (line = strstr(line, "lost: rank 2 on ")); line++) {
        const char *at = strstr(line, words), *end = strchrnul(line, '\n');
        found += at && at < end;
    }
    if (found != RANKS - 1 || code != 0)
        fail_msg("exit code %d, want 0; \"%s\" %d times, want 2, in:\n%s", code, words, found,
                 text);
}

/* The lifeline reports "died". waitpid() would have reported the signal, but it is later. */
static void test_killed(void **state)
{
    expect("die", " died");
}

static void test_stopped(void **state)
{
    expect("stop", " was stopped (state T) and silent for ");
}

static void test_exits_early(void **state)
{
    expect("exit", "");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return rank_main(argv[2]);
    if (robust_missing("agent/agent_lifelines/robust"))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_exits_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
