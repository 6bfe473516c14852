/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_init() that fails late: a rank that has met the others and then cannot start tells them why.
 * And fork(2) while another thread is inside hvd_init() or hvd_shutdown(): the child has none of
 * the engine's descriptors.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* ---- a rank that fails late ---- */

struct late {
    const char *hosts; /* a letter for each rank */
    int victim;
};

static int fail_late(int rank, int size, void *arg)
{
    const struct late *l = arg;
    const char host[2] = {l->hosts[rank], 0};
    char want[64];
    float x = 1;
    setenv("HVD_LOCALITY", host, 1);
    if (rank == l->victim)
        setenv("HVD_TIMELINE", "/nowhere/at/all.%r.json", 1);
    int rc = hvd_init();
    if (rank == l->victim)
        return rc == -ENOENT ? 0 : FAIL("%d: %s", rc, hvd_error());
    /* This rank's hvd_init() may succeed before this rank hears of the failure. */
    bool began = rc == 0;
    if (began)
        rc = hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM);
    snprintf(want, sizeof(want), "rank %d gave up: ", l->victim);
    if (rc != -ECONNRESET || !strstr(hvd_error(), want) || !strstr(hvd_error(), "/nowhere/at/all"))
        return FAIL("%d: %s", rc, hvd_error());
    return began && hvd_shutdown() != 0 ? FAIL("shutdown: %s", hvd_error()) : 0;
}

/* A rank that sees another one end waits a moment for a rank that knows the reason. On a busy
 * machine that may be too short: then the test repeats, at most twice. */
static void test_fails_late(void **state)
{
    static const char *const hosts[] = {"aaa", "abc", "aabb"};
    static const char *const env[] = {"HVD_LOG_LEVEL=error", NULL};
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct world_options o = {.size = (int)strlen(hosts[i]), .env = env};
        for (int victim = 0; victim < o.size; victim++) {
            struct late l = {hosts[i], victim};
            int bad = 1;
            for (int k = 0; k < 3 && bad; k++)
                bad = world_run_options(&o, fail_late, &l);
            assert_int_equal(bad, 0);
        }
    }
}

/* ---- fork beside init and shutdown ---- */

struct board {
    _Atomic int at; /* the call in which rank 0 is */
};

enum { AT_INIT = 1, AT_SHUTDOWN };

/* Descriptors that only the engine has here: sockets and anonymous files. */
static int count_own(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char to[64];
        ssize_t len = readlinkat(dirfd(dir), d->d_name, to, sizeof(to) - 1);
        to[len > 0 ? len : 0] = '\0';
        n += strncmp(to, "socket:", 7) == 0 || strncmp(to, "anon_inode:", 11) == 0 ||
             strncmp(to, "/memfd:", 7) == 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

struct forker {
    pthread_t thread;
    struct board *board;
    int before; /* descriptors without the engine */
    int at;     /* the call during which the thread forks */
    int kept;   /* descriptors of the child beyond `before`; -1: unknown */
};

static int kept_by_child(int before)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int kept = count_own() - before;
        _exit(kept < 0 ? 100 : kept);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* Returns whether the main thread is inside the call. New descriptors show that hvd_init() has
 * begun. */
static bool in_the_middle(const struct forker *f)
{
    return f->at == AT_INIT ? count_own() > f->before : !hvd_initialized();
}

static void *fork_in_the_middle(void *arg)
{
    struct forker *f = arg;
    f->kept = -1;
    for (int i = 0; i < 20000 && !in_the_middle(f); i++)
        usleep(1000);
    atomic_store(&f->board->at, f->at);
    f->kept = kept_by_child(f->before);
    return NULL;
}

static void until(struct board *b, int at)
{
    for (int i = 0; i < 20000 && atomic_load(&b->at) < at; i++)
        usleep(1000);
}

static int fork_beside(struct board *b)
{
    struct forker f = {.board = b, .before = count_own(), .at = AT_INIT};
    float x = 1;
    if (pthread_create(&f.thread, NULL, fork_in_the_middle, &f) != 0)
        return FAIL("no thread");
    int rc = hvd_init();
    pthread_join(f.thread, NULL);
    if (rc != 0 || hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != 0)
        return FAIL("%s", hvd_error());
    if (f.kept != 0)
        return FAIL("init: the child has %d of the engine's descriptors", f.kept);
    f.at = AT_SHUTDOWN;
    if (pthread_create(&f.thread, NULL, fork_in_the_middle, &f) != 0)
        return FAIL("no thread");
    rc = hvd_shutdown();
    pthread_join(f.thread, NULL);
    if (rc != 0 || f.kept != 0)
        return FAIL("shutdown: the child has %d of the engine's descriptors", f.kept);
    return 0;
}

static int forks(int rank, int size, void *arg)
{
    struct board *b = arg;
    float x = 1;
    if (rank == 0)
        return fork_beside(b);
    /* Rank 0 waits for this rank, inside hvd_init() and inside hvd_shutdown(). */
    until(b, AT_INIT);
    usleep(50000); /* time for rank 0 to fork in the middle */
    if (hvd_init() != 0 || hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != 0)
        return FAIL("%s", hvd_error());
    until(b, AT_SHUTDOWN);
    usleep(50000); /* time for rank 0 to fork in the middle of hvd_shutdown() */
    return hvd_shutdown() == 0 ? 0 : FAIL("%s", hvd_error());
}

static void test_fork(void **state)
{
    struct board *b = world_shared(sizeof(*b));
    assert_non_null(b);
    assert_int_equal(world_run(2, forks, b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fails_late),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests_name("multi/start", tests, NULL, NULL);
}
