/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh: forked ranks connect, share memory or not, exchange bytes, and die.
 *
 * takes: 3 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/transport/link_private.h"
#include "core/transport/shm.h"
#include "tests/harness/mesh_ranks.h"

#define FAIL(code, ...)                                                                            \
    do {                                                                                           \
        printf(__VA_ARGS__);                                                                       \
        fflush(stdout);                                                                            \
        return code;                                                                               \
    } while (0)

/* ---- every rank sends something to every other rank, both classes ---- */

enum { BIG = 3000017 };

struct talk {
    struct mesh *mesh;
    struct xfer out[MESH_RANKS_MAX], in[MESH_RANKS_MAX];
    uint8_t *data;
    uint8_t *got[MESH_RANKS_MAX];
    bool said[MESH_RANKS_MAX], heard[MESH_RANKS_MAX];
    struct buf msg;
    int error;
};

static uint8_t byte_of(int rank, size_t i)
{
    return (uint8_t)(i * 7 + i / 251 + (size_t)rank * 31);
}

static bool talked(void *arg)
{
    struct talk *t = arg;
    bool over = true;
    for (int r = 0; r < t->mesh->size; r++) {
        if (r == t->mesh->rank)
            continue;
        struct link *control = mesh_link(t->mesh, r, LINK_CONTROL);
        if (!t->said[r] && link_post(control, &t->mesh->rank, sizeof(int)) == 0)
            t->said[r] = true;
        if (!t->heard[r] && link_take(control, &t->msg) == 0) {
            int from = -1;
            if (t->msg.len == sizeof(from))
                memcpy(&from, t->msg.data, sizeof(from));
            t->error |= from != r;
            t->heard[r] = true;
        }
        int out = xfer_send(&t->out[r], BIG), in = xfer_recv(&t->in[r]);
        t->error |= out < 0 || in < 0;
        over &= out == 0 && in == 0 && t->heard[r] && link_flush(control) == 0;
    }
    return over || t->error;
}

static int body_talk(struct mesh *mesh, void *arg)
{
    struct talk t = {.mesh = mesh, .data = malloc(BIG)};
    struct err err = {0};
    for (size_t i = 0; i < BIG; i++)
        t.data[i] = byte_of(mesh->rank, i);
    for (int r = 0; r < mesh->size; r++) {
        if (r == mesh->rank)
            continue;
        t.got[r] = malloc(BIG);
        struct link *link = mesh_link(mesh, r, LINK_DATA);
        xfer_start(&t.out[r], link, 5, t.data, BIG);
        xfer_start(&t.in[r], link, 5, t.got[r], BIG);
    }
    int rc = mesh_ranks_until(mesh, talked, &t, 20000, NULL, &err);
    if (rc != 0 || t.error)
        FAIL(1, "rank %d: %d %d %s\n", mesh->rank, rc, t.error, err_text(&err));
    for (int r = 0; r < mesh->size; r++) {
        for (size_t i = 0; r != mesh->rank && i < BIG; i++)
            if (t.got[r][i] != byte_of(r, i))
                FAIL(2, "rank %d: byte %zu from rank %d is wrong\n", mesh->rank, i, r);
        free(t.got[r]);
    }
    free(t.data);
    buf_fini(&t.msg);
    if (mesh_refused(mesh) != 0)
        FAIL(3, "rank %d: connections were refused\n", mesh->rank);
    mesh_ranks_leave(mesh);
    return 0;
}

static void test_one_host(void **state)
{
    struct mesh_ranks m = {.n = 4, .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static void test_agent(void **state)
{
    struct mesh_ranks m = {.n = 3, .agent = true, .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static void test_tcp_only(void **state)
{
    struct mesh_ranks m = {.n = 4, .hosts = "abcd", .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static void test_no_key(void **state)
{
    struct mesh_ranks m = {.n = 3, .hosts = "aab", .no_key = true, .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static void test_mixed(void **state)
{
    struct mesh_ranks m = {.n = 5, .hosts = "aabab", .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static void test_mixed_agent(void **state)
{
    struct mesh_ranks m = {.n = 4, .hosts = "abab", .agent = true, .body = body_talk};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* Ranks that only have a data link receive each other's farewell on it at once. */
static bool carried(void *arg)
{
    struct talk *t = arg;
    int out = xfer_send(&t->out[0], 1), in = xfer_recv(&t->in[0]);
    t->error |= out < 0 || in < 0;
    return t->error || (out == 0 && in == 0);
}

static int body_data_only(struct mesh *mesh, void *arg)
{
    struct talk t = {.mesh = mesh};
    uint8_t out = 1, in = 0;
    int rc = 0, rank = mesh->rank;
    if (rank % 2) {
        struct link *link = mesh_link(mesh, rank ^ 2, LINK_DATA);
        xfer_start(&t.out[0], link, 1, &out, 1);
        xfer_start(&t.in[0], link, 1, &in, 1);
        rc = mesh_ranks_until(mesh, carried, &t, 20000, NULL, NULL);
    }
    uint64_t begin = clock_ns();
    mesh_ranks_leave(mesh);
    uint64_t took = (clock_ns() - begin) / CLOCK_MS;
    if (rc || t.error || in != rank % 2 || took > 3000)
        FAIL(1, "rank %d: %d %d, %d ms\n", rank, rc, t.error, (int)took);
    return 0;
}

static void test_data_only(void **state)
{
    struct mesh_ranks m = {.n = 4, .hosts = "aabb", .body = body_data_only};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m.agent = true;
    m.hosts = "abab";
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- the map ---- */

static int body_map(struct mesh *mesh, void *arg)
{
    static const int host[] = {0, 1, 0, 2, 1, 0}, local[] = {0, 0, 1, 0, 1, 2}, sizes[] = {3, 2, 1};
    int r = mesh->rank, code = 0;
    if (mesh->size != 6 || mesh->hosts != 3 || mesh->lanes != 1 || mesh->epoch != 7 ||
        mesh->generation == 0)
        FAIL(1, "rank %d: %d hosts, %d lanes\n", r, mesh->hosts, mesh->lanes);
    for (int i = 0; i < 6; i++)
        if (mesh->host_of[i] != host[i] || mesh->local_of[i] != local[i] ||
            mesh_rank_at(mesh, host[i], local[i]) != i)
            code = 2;
    for (int h = 0; h < 3; h++)
        if (mesh->local_size_of[h] != sizes[h])
            code = 3;
    if (mesh->host != host[r] || mesh->local_rank != local[r] ||
        mesh->local_size != sizes[host[r]] || !mesh->shm != (sizes[host[r]] == 1))
        code = 4;
    if (mesh->shm && (mesh->shm->seat != local[r] || mesh->shm->seats != sizes[host[r]]))
        code = 5;
    if (mesh_rank_at(mesh, 2, 1) != -1 || mesh_link(mesh, r, LINK_DATA) != NULL)
        code = 6;
    mesh_ranks_leave(mesh);
    return code;
}

static void test_map(void **state)
{
    struct mesh_ranks m = {.n = 6, .hosts = "xyxzyx", .body = body_map};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* A rank that is alone on its host may spin if its thread may use more than one processor. */
static bool spin_is_right(const struct mesh *mesh)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    bool right = !mesh_may_spin(mesh);
    sched_setaffinity(0, sizeof(all), &all);
    return right && mesh_may_spin(mesh) == (cpus_usable() > 1);
}

/* When the mesh is made every rank of a host knows whether it may spin, also the one that made the
 * segment. */
static bool spin_is_shared(const struct mesh *mesh)
{
    int cpus = mesh->shm->usable_cpus;
    return cpus > 0 && mesh_may_spin(mesh) == (mesh->local_size <= cpus);
}

static int body_spin(struct mesh *mesh, void *arg)
{
    bool right = mesh->shm ? spin_is_shared(mesh) : spin_is_right(mesh);
    mesh_ranks_leave(mesh);
    return !right;
}

static void test_spin(void **state)
{
    struct mesh_ranks m = {.n = 1, .body = body_spin};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m.n = 3;
    m.hosts = "aba";
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

static int body_alone(struct mesh *mesh, void *arg)
{
    int peer = 5;
    if (mesh->hosts != 1 || mesh->local_size != 1 || mesh->shm || mesh_fd(mesh) < 0 ||
        mesh_progress(mesh, &peer, NULL) != 0)
        return 1;
    mesh_wake(mesh);
    struct pollfd p = {.fd = mesh_fd(mesh), .events = POLLIN};
    if (poll(&p, 1, 20000) != 1 || mesh_progress(mesh, NULL, NULL) != 0 || poll(&p, 1, 0) != 0)
        return 2;
    mesh_ranks_leave(mesh);
    return 0;
}

static void test_alone(void **state)
{
    struct mesh_ranks m = {.n = 1, .body = body_alone};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    m.agent = true;
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- deaths ---- */

/* The victim kills itself. Every other rank must name it within 10 s. (tests/fault measures the
 * promised 2 s; this limit allows for a busy machine.) */
static int body_death(struct mesh *mesh, void *arg)
{
    const char *words = arg;
    int victim = words[0] - '0', peer = -9;
    struct err err = {0};
    if (mesh->rank == victim) {
        usleep(100000);
        raise(SIGKILL);
    }
    uint64_t begin = clock_ns();
    int rc = mesh_ranks_until(mesh, NULL, NULL, 20000, &peer, &err);
    uint64_t took = (clock_ns() - begin) / CLOCK_MS;
    if (rc != -ECONNRESET || peer != victim || took > 10000 || !strstr(err.msg, words + 1))
        FAIL(1, "rank %d: rc %d, peer %d, %d ms, %s\n", mesh->rank, rc, peer, (int)took,
             err_text(&err));
    if (mesh_progress(mesh, &peer, NULL) != -ECONNRESET || peer != victim)
        return 2;
    mesh_destroy(mesh);
    return 0;
}

static void expect_death(struct mesh_ranks *m, const char *words)
{
    int victim = words[0] - '0';
    m->body = body_death;
    m->arg = (void *)words;
    mesh_ranks_run(m);
    assert_int_equal(m->status[victim], -SIGKILL);
    for (int r = 0; r < m->n; r++)
        if (r != victim)
            assert_int_equal(m->status[r], 0);
}

static void test_death_local(void **state)
{
    struct mesh_ranks m = {.n = 4};
    expect_death(&m, "2rank 2");
    expect_death(&m, "0rank 0");
}

static void test_death_agent(void **state)
{
    struct mesh_ranks m = {.n = 4, .agent = true};
    expect_death(&m, "2rank 2 ended with status -9, says the agent");
    m.hosts = "aabb";
    expect_death(&m, "3rank 3 ended with status -9, says the agent");
}

static void test_death_tcp(void **state)
{
    struct mesh_ranks m = {.n = 4, .hosts = "abcd"};
    expect_death(&m, "2rank 2");
    expect_death(&m, "0rank 0");
}

static void test_death_mixed(void **state)
{
    struct mesh_ranks m = {.n = 6, .hosts = "aaabbb"};
    expect_death(&m, "1rank 1");
    expect_death(&m, "3rank 3");
    expect_death(&m, "5rank 5");
    expect_death(&m, "0rank 0");
}

static int body_abort(struct mesh *mesh, void *arg)
{
    int peer = -9;
    struct err err = {0};
    if (mesh->rank == 3) {
        mesh_ranks_until(mesh, NULL, NULL, 200, NULL, NULL);
        mesh_abort(mesh, "out of ideas");
        if (mesh_progress(mesh, &peer, NULL) != -ECONNRESET || peer != 3)
            return 1;
        mesh_destroy(mesh);
        return 0;
    }
    int rc = mesh_ranks_until(mesh, NULL, NULL, 20000, &peer, &err);
    if (rc != -ECONNRESET || peer != 3 || !strstr(err.msg, "rank 3 gave up: out of ideas"))
        FAIL(2, "rank %d: rc %d, peer %d, %s\n", mesh->rank, rc, peer, err_text(&err));
    mesh_destroy(mesh);
    return 0;
}

static void test_abort(void **state)
{
    struct mesh_ranks m = {.n = 5, .hosts = "aabbb", .body = body_abort};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- a full pipe ---- */

enum { PIPEFUL = 1 << 20 };

/* Rank 1 empties the pipe while rank 0, which has more to send, neither polls nor is marked
 * asleep, so that rank 1 does not ring its doorbell. Rank 0 must send more before it sleeps. */
static int body_full_pipe(struct mesh *mesh, void *arg)
{
    _Atomic int *emptied = arg; /* number of times */
    struct link *link = mesh_link(mesh, 1 - mesh->rank, LINK_CONTROL);
    struct buf msg = {0};
    if (mesh->rank == 1) {
        while (link_take(link, &msg) == 1) {
            atomic_fetch_add(emptied, 1);
            if (mesh_progress(mesh, NULL, NULL) < 0)
                FAIL(4, "rank 0 has ended\n");
            sched_yield();
        }
        size_t len = msg.len;
        buf_fini(&msg);
        mesh_ranks_leave(mesh);
        return len == PIPEFUL ? 0 : 1;
    }
    uint8_t *data = calloc(1, PIPEFUL);
    if (!data || link_post(link, data, PIPEFUL) != 0)
        FAIL(2, "the message was not queued\n");
    free(data);
    for (int naps = 0; link->out.len > 0; naps++) {
        mesh_progress(mesh, NULL, NULL); /* fills the pipe */
        int seen = atomic_load(emptied);
        while (link->out.len > 0 && atomic_load(emptied) < seen + 2)
            sched_yield();
        size_t before = link->out_done;
        mesh_sleep_begin(mesh);
        if (link->out.len > 0 && link->out_done == before)
            FAIL(3, "nap %d: the pipe is empty, and nobody will wake this rank\n", naps);
        mesh_sleep_end(mesh);
    }
    mesh_ranks_leave(mesh);
    return 0;
}

static void test_full_pipe(void **state)
{
    _Atomic int *emptied =
        mmap(NULL, sizeof(*emptied), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(emptied != MAP_FAILED);
    struct mesh_ranks m = {.n = 2, .body = body_full_pipe, .arg = emptied};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
    munmap(emptied, sizeof(*emptied));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),       cmocka_unit_test(test_spin),
        cmocka_unit_test(test_map),         cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_agent),       cmocka_unit_test(test_tcp_only),
        cmocka_unit_test(test_no_key),      cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_mixed_agent), cmocka_unit_test(test_death_local),
        cmocka_unit_test(test_death_agent), cmocka_unit_test(test_death_tcp),
        cmocka_unit_test(test_death_mixed), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_data_only),   cmocka_unit_test(test_full_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
