/* SPDX-License-Identifier: Apache-2.0
 *
 * local: ranks of one host that cannot or may not share memory use TCP; a thousand meshes leak
 * nothing; children of fork(2) hold nothing open.
 *
 * takes: 3 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/mesh_ranks.h"
#include "tests/harness/world.h"
#include "tests/harness/open_fds.h"

struct ping {
    struct mesh *mesh;
    struct buf msg;
    bool said[MESH_RANKS_MAX], heard[MESH_RANKS_MAX];
};

static bool pinged(void *arg)
{
    struct ping *p = arg;
    bool all = true;
    for (int r = 0; r < p->mesh->size; r++) {
        if (r == p->mesh->rank)
            continue;
        struct link *link = mesh_link(p->mesh, r, LINK_CONTROL);
        if (!p->said[r])
            p->said[r] = link_post(link, "ping", 4) == 0;
        if (!p->heard[r])
            p->heard[r] = link_take(link, &p->msg) == 0;
        all &= p->heard[r] && link_flush(link) == 0;
    }
    return all;
}

/* Every pair exchanges a message. hosts: the expected number of hosts. */
static int ping_all(struct mesh *mesh, void *hosts)
{
    struct ping p = {.mesh = mesh};
    struct err err = {0};
    int rc = mesh_ranks_until(mesh, pinged, &p, 10000, NULL, &err);
    buf_fini(&p.msg);
    if (rc != 0)
        printf("rank %d: %d %s\n", mesh->rank, rc, err_text(&err));
    if (mesh->hosts != (int)(intptr_t)hosts)
        rc = 2;
    mesh_ranks_leave(mesh);
    return rc != 0;
}

static void no_shm(int rank)
{
    setenv("HVD_SHM", rank == 1 ? "0" : "1", 1);
}

static void test_shm_off(void **state)
{
    struct mesh_ranks m = {.n = 3, .before = no_shm, .body = ping_all, .arg = (void *)2};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* The segment cannot be created, because RLIMIT_FSIZE is too small. */
static void no_segment(int rank)
{
    struct rlimit small = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    if (rank == 0)
        setrlimit(RLIMIT_FSIZE, &small);
    setenv("HVD_LOG_LEVEL", "error", 1);
}

static void test_no_segment(void **state)
{
    struct mesh_ranks m = {.n = 3, .before = no_segment, .body = ping_all, .arg = (void *)3};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m.agent = true;
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* If one rank cannot map the segment, no rank of the host uses it. */
static void no_room(int rank)
{
    struct rlimit now;
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (rank != 2 || !f || fscanf(f, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &now) < 0) {
        if (f)
            fclose(f);
        return;
    }
    fclose(f);
    now.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (1 << 20);
    setrlimit(RLIMIT_AS, &now);
}

static void test_no_room(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    print_message("SKIP: transport/local/no_room: address space: ASan needs it all\n");
    skip();
#endif
    struct mesh_ranks m = {.n = 3, .met = no_room, .body = ping_all, .arg = (void *)3};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- leaks ---- */

static long mapped_kib(void)
{
    char line[256];
    long kib = 0, total = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %ld", &kib) == 1)
            total = kib;
    if (f)
        fclose(f);
    return total;
}

/* Sanitizers keep freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* The first rounds set the limit for the others. */
static int leave_nothing(struct mesh *mesh, void *arg)
{
    static int round, fds;
    static long kib;
    mesh_ranks_leave(mesh);
    if (++round == 20) {
        fds = open_fds();
        kib = mapped_kib();
    } else if (round > 20 && open_fds() > fds) {
        printf("round %d: %d descriptors, were %d\n", round, open_fds(), fds);
        return 1;
    } else if (!SANITIZED && round % 100 == 0 && mapped_kib() > kib + 2048) {
        printf("round %d: %ld KiB, were %ld\n", round, mapped_kib(), kib);
        return 2;
    }
    return 0;
}

static void test_many(void **state)
{
    struct mesh_ranks m = {.n = 2, .rounds = 400, .body = leave_nothing};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m.hosts = "ab";
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m = (struct mesh_ranks){.n = 1, .rounds = 400, .body = leave_nothing};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- fork ---- */

static pid_t *orphan; /* pid of the child of rank 1; shared with the ranks */

/* Rank 1 forks a child that lives on, like a DataLoader's, and is killed. */
static int die_with_child(struct mesh *mesh, void *arg)
{
    int peer = -9, before = open_fds();
    struct err err = {0};
    if (mesh->rank == 1) {
        pid_t child = fork();
        if (child == 0) {
            mesh_after_fork(mesh);
            if (open_fds() >= before - 3)
                raise(SIGABRT);
            sleep(55);
            _exit(0);
        }
        *orphan = child;
        mesh_ranks_until(mesh, NULL, NULL, 200, NULL, NULL);
        raise(SIGKILL);
    }
    uint64_t begin = clock_ns();
    int rc = mesh_ranks_until(mesh, NULL, NULL, 20000, &peer, &err);
    uint64_t ms = (clock_ns() - begin) / CLOCK_MS;
    mesh_destroy(mesh);
    if (rc == -ECONNRESET && peer == 1 && ms < 10000)
        return 0;
    printf("rank %d: rc %d peer %d after %d ms: %s\n", mesh->rank, rc, peer, (int)ms,
           err_text(&err));
    return 1;
}

static void test_fork(void **state)
{
    static const char *const hosts[] = {"aaa", "abc", "aab"};
    orphan = world_shared(sizeof(*orphan));
    for (size_t i = 0; i < 3; i++) {
        struct mesh_ranks m = {.n = 3, .hosts = hosts[i], .body = die_with_child};
        mesh_ranks_run(&m);
        /* The child must still be alive, or the test has proved nothing. No other process ends
         * it. */
        assert_true(*orphan > 0);
        assert_int_equal(kill(*orphan, SIGKILL), 0);
        assert_int_equal(m.status[1], -SIGKILL);
        assert_int_equal(m.status[0], 0);
        assert_int_equal(m.status[2], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_off), cmocka_unit_test(test_no_segment),
        cmocka_unit_test(test_no_room), cmocka_unit_test(test_many),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
