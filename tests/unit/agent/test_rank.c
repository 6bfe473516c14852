/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rank: the end of a rank. Processes that are left in its process group are ended. A group
 * that is empty is not signalled again, because its number may be in use by another group.
 *
 * takes: 3 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/rank.h"
#include "core/base/clock.h"

#define WAIT_MS 20000

extern char **environ;

struct fixture {
    struct loop loop;
    struct rank rank;
    bool exited, closed;
    pid_t said; /* the number that the rank has printed */
};

static void on_output(void *arg, struct rank *rank, enum frame_stream stream, const void *data,
                      size_t n)
{
    struct fixture *f = arg;
    char text[32] = "";
    (void)rank, (void)stream;
    memcpy(text, data, n < sizeof(text) ? n : sizeof(text) - 1);
    f->said = (pid_t)atoi(text);
}

static void on_frame(void *arg, struct rank *rank, struct ctl_frame *frame)
{
    (void)arg, (void)rank, (void)frame;
}

static void on_nothing(void *arg, struct rank *rank)
{
    (void)arg, (void)rank;
}

static void on_exited(void *arg, struct rank *rank)
{
    struct fixture *f = arg;
    (void)rank;
    f->exited = true;
}

static void on_closed(void *arg, struct rank *rank)
{
    struct fixture *f = arg;
    (void)rank;
    f->closed = true;
}

static const struct rank_ops ops = {.output = on_output,
                                    .frame = on_frame,
                                    .started = on_nothing,
                                    .exited = on_exited,
                                    .hello_ended = on_nothing,
                                    .closed = on_closed};

/* Starts the script as a rank and reaps it as an agent does. */
static void run(struct fixture *f, char *script)
{
    const struct assignment assignment = {0, 0, 0, 1};
    char *argv[] = {"sh", "-c", script, NULL};
    struct rank_spec spec = {.argv = argv, .env = environ, .cwd = "/", .exec_ms = WAIT_MS};
    siginfo_t info;
    int child_fd, status;
    *f = (struct fixture){0};
    assert_int_equal(loop_init(&f->loop), 0);
    assert_int_equal(rank_init(&f->rank, &f->loop, &ops, f, &assignment, &child_fd, NULL), 0);
    assert_int_equal(rank_start(&f->rank, &spec, child_fd, NULL), 0);
    assert_int_equal(waitid(P_PID, (id_t)f->rank.pid, &info, WEXITED | WNOWAIT), 0);
    rank_kill(&f->rank, SIGTERM);
    assert_int_equal(waitpid(f->rank.pid, &status, 0), f->rank.pid);
    rank_exited(&f->rank, status);
    assert_true(f->exited);
}

static void end(struct fixture *f)
{
    rank_fini(&f->rank);
    loop_fini(&f->loop);
}

/* Reaps what the rank leaves behind, too: the agent gets its orphans, and in a container the
 * process with pid 1 may reap nothing. */
static void wait_for(struct fixture *f, const bool *flag)
{
    uint64_t deadline = deadline_in_ms(WAIT_MS);
    while (!*flag && !deadline_passed(deadline)) {
        loop_once(&f->loop, 20);
        while (waitpid(-f->rank.pid, NULL, WNOHANG) > 0)
            ;
    }
    assert_true(*flag);
}

/* Not under qemu-user 7.2, which has no subreapers: the orphans go to pid 1. */
static bool gets_orphans;

/* A process of the group that ignores SIGTERM is killed. */
static void test_left_in_group(void **state)
{
    struct fixture f;
    (void)state;
    run(&f, "trap '' TERM; sleep 300 & exit 0");
    pid_t group = f.rank.pid;
    wait_for(&f, &f.closed);
    assert_int_equal(f.rank.code, 0);
    assert_int_equal(kill(-group, 0), -1);
    end(&f);
}

/* A process with a session of its own still holds the output pipe. The rank's group is empty, and
 * another group gets its number. */
static void test_number_reused(void **state)
{
    struct fixture f;
    (void)state;
    run(&f, "setsid sleep 300 & echo $!; "
            "while [ \"$(cut -d ' ' -f 6 /proc/$!/stat)\" != $! ]; do :; done");
    wait_for(&f, &f.rank.group_ended);
    assert_false(f.closed);
    pid_t other = fork();
    if (other == 0) {
        setpgid(0, 0);
        for (;;)
            pause();
    }
    setpgid(other, other);
    f.rank.pid = other;
    rank_kill(&f.rank, SIGKILL);
    rank_end(&f.rank, 0);
    wait_for(&f, &f.closed);
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    assert_true(f.said > 1);
    kill(f.said, SIGKILL);
    if (gets_orphans)
        assert_int_equal(waitpid(f.said, NULL, 0), f.said);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    end(&f);
}

int main(void)
{
    gets_orphans = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_in_group),
        cmocka_unit_test(test_number_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
