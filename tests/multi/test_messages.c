/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_send(), hvd_recv(), hvd_exchange(): random exchanges of all sizes in the world and in sets,
 * by any source, to oneself; what is refused; messages that are too large; ends of ranks.
 *
 * timeout: 200
 * takes: 10 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define MOST 6
#define MANY 24 /* messages from each rank to each other one in a round */

static int expect(int rc, int want, const char *text)
{
    if (rc != want || !strstr(hvd_error(), text))
        return FAIL("%d (%s), not %d (%s)", rc, hvd_error(), want, text);
    return 0;
}

static int ended(int rc)
{
    return rc ? rc : hvd_shutdown() != 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- random exchanges ----------------------------------------------------------------------- */

/* Message number k of a round, from one rank of the set to another one. */
struct letter {
    uint64_t seed;
    int tag;
    size_t bytes;
};

static struct letter letter_of(uint64_t round, int from, int to, int k)
{
    static const size_t sizes[] = {0, 1, 8, 100, 4096, 16384, 16385, 70000, 300000, 2500000};
    uint64_t state = round * 7919 + (uint64_t)from * 104729 + (uint64_t)to * 1299709 + (uint64_t)k;
    for (int i = 0; i < 3; i++)
        rank_random(&state);
    struct letter l = {.tag = (int)(rank_random(&state) % 3)};
    uint64_t pick = rank_random(&state);
    l.bytes = sizes[pick % (k == 0 ? 10 : 8)];
    l.seed = rank_random(&state);
    return l;
}

static void fill(uint8_t *data, const struct letter *l)
{
    for (size_t i = 0; i < l->bytes; i++)
        data[i] = (uint8_t)(l->seed + i * 31 + (i >> 11));
}

static bool is_whole(const uint8_t *data, const struct letter *l)
{
    for (size_t i = 0; i < l->bytes; i++)
        if (data[i] != (uint8_t)(l->seed + i * 31 + (i >> 11)))
            return false;
    return true;
}

/* A set as a rank sees it, and the memory of one round in it. */
struct group {
    int set, rank, size;
    uint64_t round;
    uint8_t *out[MOST][MANY], *in[MOST][MANY];
    struct hvd_arrival arrivals[MOST][MANY];
    hvd_handle sent[MOST][MANY], received[MOST][MANY];
};

/* The k-th message of this tag from a rank is the k-th that it has sent with this tag. */
static int nth_of_tag(const struct group *g, int from, int tag, int n)
{
    for (int k = 0; k < MANY; k++)
        if (letter_of(g->round, from, g->rank, k).tag == tag && n-- == 0)
            return k;
    return -1;
}

static int send_all(struct group *g, int peer)
{
    struct hvd_message m[MANY];
    for (int k = 0; k < MANY; k++) {
        struct letter l = letter_of(g->round, g->rank, peer, k);
        g->out[peer][k] = malloc(l.bytes + 1);
        fill(g->out[peer][k], &l);
        m[k] = (struct hvd_message){.direction = HVD_SEND,
                                    .peer = peer,
                                    .tag = l.tag,
                                    .set = g->set,
                                    .device = -1,
                                    .data = g->out[peer][k],
                                    .bytes = (int64_t)l.bytes};
    }
    return hvd_exchange(m, MANY, g->sent[peer]) != 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Receives in another order of tags than they are sent. */
static int receive_all(struct group *g, int peer, uint64_t *random)
{
    int order[MANY], n[3] = {0};
    rank_shuffle(order, MANY, random);
    for (int i = 0; i < MANY; i++) {
        int tag = letter_of(g->round, peer, g->rank, order[i]).tag;
        int k = nth_of_tag(g, peer, tag, n[tag]++);
        struct letter l = letter_of(g->round, peer, g->rank, k);
        g->in[peer][k] = malloc(l.bytes + 8);
        struct hvd_message m = {.direction = HVD_RECV,
                                .peer = peer,
                                .tag = tag,
                                .set = g->set,
                                .device = -1,
                                .data = g->in[peer][k],
                                .bytes = (int64_t)l.bytes + (k % 2 ? 8 : 0),
                                .ret_arrival = &g->arrivals[peer][k]};
        if (hvd_exchange(&m, 1, &g->received[peer][k]) != 0)
            return FAIL("%s", hvd_error());
    }
    return 0;
}

static int finish(struct group *g, int peer)
{
    for (int k = 0; k < MANY; k++) {
        struct letter l = letter_of(g->round, peer, g->rank, k);
        if (hvd_wait(g->received[peer][k]) != 0 || hvd_wait(g->sent[peer][k]) != 0)
            return FAIL("%s", hvd_error());
        if (g->arrivals[peer][k].peer != peer || g->arrivals[peer][k].bytes != (int64_t)l.bytes)
            return FAIL("%d bytes from %d, not %zu from %d", (int)g->arrivals[peer][k].bytes,
                        g->arrivals[peer][k].peer, l.bytes, peer);
        if (!is_whole(g->in[peer][k], &l))
            return FAIL("set %d, round %d: message %d from %d is damaged", g->set, (int)g->round, k,
                        peer);
        free(g->in[peer][k]);
        free(g->out[peer][k]);
    }
    return 0;
}

static int exchange(struct group *groups, int n, uint64_t *random)
{
    int rc = 0;
    for (int i = 0; i < n; i++) {
        struct group *g = &groups[i];
        int order[MOST];
        rank_shuffle(order, g->size, random);
        for (int r = 0; r < g->size && rc == 0; r++)
            rc = rank_random(random) % 2 ? send_all(g, order[r]) : receive_all(g, order[r], random);
        for (int r = 0; r < g->size && rc == 0; r++)
            rc = g->sent[order[r]][0] ? receive_all(g, order[r], random) : send_all(g, order[r]);
    }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < groups[i].size && rc == 0; r++)
            rc = finish(&groups[i], r);
    return rc;
}

/* In the world and in a set of the same ranks in another order, with sums in between. */
static int random_exchanges(int rank, int size, void *arg)
{
    static struct group groups[2];
    const int rounds = *(const int *)arg;
    uint64_t random = (uint64_t)rank + 1;
    int ranks[MOST], set = 0, rc = 0;
    for (int i = 0; i < size; i++)
        ranks[i] = size - 1 - i;
    if (hvd_init() != 0 || hvd_set_add(ranks, size, &set) != 0)
        return FAIL("%s", hvd_error());
    for (int round = 0; round < rounds && rc == 0; round++) {
        float x = 1;
        memset(groups, 0, sizeof(groups));
        groups[0] = (struct group){.rank = rank, .size = size, .round = (uint64_t)round};
        groups[1] = (struct group){
            .set = set, .rank = hvd_set_rank(set), .size = size, .round = (uint64_t)round + 1000};
        rc = exchange(groups, 2, &random);
        if (rc == 0 &&
            (hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != 0 || x != (float)size))
            rc = FAIL("%s", hvd_error());
    }
    if (rc == 0 && hvd_set_remove(set) != 0)
        rc = FAIL("%s", hvd_error());
    return ended(rc);
}

static void test_random(void **state)
{
    int rounds = 12;
    assert_int_equal(world_run(1, random_exchanges, &rounds), 0);
    assert_int_equal(world_run(2, random_exchanges, &rounds), 0);
    assert_int_equal(world_run(4, random_exchanges, &rounds), 0);
}

/* As in containers that forbid process_vm_readv(): large messages go through the shared segment. */
static int forbid_direct(int rank, int size, void *arg)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 4, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return FAIL("no filter for system calls: %s", strerror(errno));
    return random_exchanges(rank, size, arg);
}

static void test_not_direct(void **state)
{
    int rounds = 12;
    assert_int_equal(world_run(3, forbid_direct, &rounds), 0);
}

static void test_hosts(void **state)
{
    int rounds = 6;
    if (!world_can_netns("multi/messages/hosts"))
        return;
    const struct world_options o = {.size = 5, .hosts = 3};
    assert_int_equal(world_run_options(&o, random_exchanges, &rounds), 0);
}

/* ---- any source, blocking calls -------------------------------------------------------------- */

/* Rank 0 receives from any: small messages and large ones, each as often as it was sent. */
static int any_source(int rank, int size, void *arg)
{
    static uint8_t data[40000];
    const int each = 200;
    int counts[MOST] = {0}, rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < each && rank > 0 && rc == 0; i++) {
        memset(data, rank, sizeof(data));
        if (hvd_send(data, i % 3 ? rank * 10 : 30000 + rank, 0, 7, 0) != 0)
            rc = FAIL("%s", hvd_error());
    }
    for (int i = 0; i < each * (size - 1) && rank == 0 && rc == 0; i++) {
        struct hvd_arrival a = {0};
        if (hvd_recv(data, sizeof(data), HVD_ANY, 7, 0, &a) != 0)
            rc = FAIL("%s", hvd_error());
        else if (a.bytes != (counts[a.peer] % 3 ? a.peer * 10 : 30000 + a.peer) ||
                 data[0] != a.peer || data[a.bytes - 1] != a.peer)
            rc = FAIL("message %d of rank %d: %d bytes", counts[a.peer], a.peer, (int)a.bytes);
        counts[a.peer]++;
    }
    return ended(rc);
}

static void test_any(void **state)
{
    assert_int_equal(world_run(4, any_source, NULL), 0);
}

/* A token goes round many times; the ranks block in turn. */
static int ring(int rank, int size, void *arg)
{
    int token = 0, rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 3000 && rc == 0; i++) {
        if (rank == 0 && hvd_send(&token, sizeof(token), 1 % size, 1, 0) != 0)
            rc = FAIL("%s", hvd_error());
        if (!rc && hvd_recv(&token, sizeof(token), (rank + size - 1) % size, 1, 0, NULL) != 0)
            rc = FAIL("%s", hvd_error());
        token++;
        if (!rc && rank > 0 && hvd_send(&token, sizeof(token), (rank + 1) % size, 1, 0) != 0)
            rc = FAIL("%s", hvd_error());
    }
    if (rc == 0 && rank == 0 && token != 3000 * size)
        rc = FAIL("the token is %d", token);
    return ended(rc);
}

static void test_ring(void **state)
{
    assert_int_equal(world_run(3, ring, NULL), 0);
}

/* Nobody receives for a while: the sender's small messages end, up to a bound, and all arrive. */
static int flood(int rank, int size, void *arg)
{
    enum { N = 5000, BYTES = 1000 };
    static uint8_t data[N][BYTES];
    static hvd_handle handles[N];
    int rc = 0, done = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < N && rank == 0 && rc == 0; i++) {
        memset(data[i], i, BYTES);
        struct hvd_message m = {.direction = HVD_SEND,
                                .peer = 1,
                                .tag = 2,
                                .device = -1,
                                .data = data[i],
                                .bytes = BYTES};
        if (hvd_exchange(&m, 1, &handles[i]) != 0)
            rc = FAIL("%s", hvd_error());
    }
    nap_ms(rank == 0 ? 300 : 1000);
    for (int i = 0; i < N && rank == 0; i++)
        done += hvd_poll(handles[i]) == 1;
    if (rank == 0 && (done == 0 || done > 2200))
        rc = FAIL("%d of %d sends have ended", done, N);
    for (int i = 0; i < N && rank == 1 && rc == 0; i++)
        if (hvd_recv(data[0], BYTES, 0, 2, 0, NULL) != 0 || data[0][BYTES - 1] != (uint8_t)i)
            rc = FAIL("message %d: %d %s", i, data[0][0], hvd_error());
    for (int i = 0; i < N && rank == 0 && rc == 0; i++)
        rc = hvd_wait(handles[i]) != 0 ? FAIL("%s", hvd_error()) : 0;
    return ended(rc);
}

static void test_flood(void **state)
{
    assert_int_equal(world_run(2, flood, NULL), 0);
}

/* ---- refused -------------------------------------------------------------------------------- */

static int refuse(void)
{
    char x[8];
    hvd_handle h;
    struct hvd_message m = {.direction = HVD_SEND, .peer = 1, .device = -2, .data = x, .bytes = 8};
    int rc = expect(hvd_send(x, 8, 2, 0, 0), -EINVAL, "there is no rank 2 in a job of 2");
    rc = rc ? rc : expect(hvd_send(x, 8, HVD_ANY, 0, 0), -EINVAL, "there is no rank -1");
    rc = rc ? rc : expect(hvd_recv(x, 8, -2, 0, 0, NULL), -EINVAL, "there is no rank -2");
    rc = rc ? rc : expect(hvd_send(x, 8, 1, -1, 0), -EINVAL, "tag -1 is negative");
    rc = rc ? rc : expect(hvd_send(x, -1, 1, 0, 0), -EINVAL, "a message of -1 bytes");
    rc = rc ? rc : expect(hvd_send(NULL, 1, 1, 0, 0), -EINVAL, "a message of 1 bytes at");
    rc = rc ? rc : expect(hvd_send(x, 8, 1, 0, 5), -EINVAL, "there is no set 5");
    rc = rc ? rc : expect(hvd_exchange(&m, 1, &h), -EINVAL, "device is -2");
    rc = rc ? rc : expect(hvd_exchange(&m, 0, &h), -EINVAL, "0 messages");
    return rc ? rc : expect(hvd_exchange_sized(&m, 8, 1, &h), -EINVAL, "a message of 8 bytes");
}

/* Of a small message, a large one, one that has come before, one to oneself. */
static int too_large(int rank)
{
    static char x[50000];
    const int sizes[] = {100, 50000, 100, 50000};
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++) {
        if (rank == 1 && i > 1)
            nap_ms(50);
        if (rank == 0 && hvd_send(x, sizes[i], 1, 3, 0) != 0)
            rc = FAIL("%s", hvd_error());
        if (rank == 1)
            rc = expect(hvd_recv(x, 99, 0, 3, 0, NULL), -EMSGSIZE, "from rank 0: a message of");
        if (rank == 0 && rc == 0 && hvd_send(x, 10, 1, 3, 0) != 0)
            rc = FAIL("%s", hvd_error());
        if (rank == 1 && rc == 0 && hvd_recv(x, 99, 0, 3, 0, NULL) != 0)
            rc = FAIL("%s", hvd_error());
    }
    struct hvd_message self = {
        .direction = HVD_SEND, .peer = rank, .device = -1, .data = x, .bytes = 100};
    hvd_handle h;
    if (rc == 0 && hvd_exchange(&self, 1, &h) != 0)
        rc = FAIL("%s", hvd_error());
    if (rc == 0)
        rc = expect(hvd_recv(x, 99, rank, 0, 0, NULL), -EMSGSIZE, "a message of 100 bytes");
    return rc ? rc : hvd_wait(h) != 0 ? FAIL("%s", hvd_error()) : 0;
}

static int refused(int rank, int size, void *arg)
{
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = refuse();
    return ended(rc ? rc : too_large(rank));
}

static void test_refused(void **state)
{
    assert_int_equal(world_run(2, refused, NULL), 0);
}

/* ---- the end of a rank ---------------------------------------------------------------------- */

/* Rank 1 sends something and leaves, or dies. Rank 0 has not asked for it before. */
static int leaves(int rank, int size, void *arg)
{
    static char x[50000];
    bool dies = *(const bool *)arg;
    hvd_handle h;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    struct hvd_message large = {
        .direction = HVD_SEND, .peer = 1, .tag = 9, .device = -1, .data = x, .bytes = 50000};
    if (rank == 1) {
        if (hvd_send("last", 5, 0, 1, 0) != 0)
            return FAIL("%s", hvd_error());
        nap_ms(200);
        return dies ? raise(SIGKILL) : hvd_shutdown() != 0;
    }
    if (rank == 2) {
        hvd_barrier("never");
        hvd_shutdown();
        return 0;
    }
    if (hvd_exchange(&large, 1, &h) != 0)
        return FAIL("%s", hvd_error());
    nap_ms(1500);
    int rc = dies ? 0
             : hvd_recv(x, 5, 1, 1, 0, NULL) != 0 || strcmp(x, "last") != 0
                 ? FAIL("%s", hvd_error())
                 : 0;
    int want = dies ? -ECONNRESET : -ESHUTDOWN;
    rc = rc ? rc : expect(hvd_wait(h), want, dies ? "rank 1" : "rank 1 has shut down");
    rc = rc ? rc : expect(hvd_recv(x, 5, 1, 1, 0, NULL), want, "rank 1");
    return ended(rc);
}

static void test_leaves(void **state)
{
    bool dies = false;
    assert_int_equal(world_run(2, leaves, &dies), 0);
    if (!world_can_netns("multi/messages/leaves"))
        return;
    const struct world_options o = {.size = 2, .hosts = 2};
    assert_int_equal(world_run_options(&o, leaves, &dies), 0);
}

static void test_dies(void **state)
{
    struct world *w;
    bool dies = true;
    int status[2];
    const struct world_options o = {.size = 2};
    assert_int_equal(world_start(&o, leaves, &dies, &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
}

/* ---- stalls, shutdown ------------------------------------------------------------------------ */

/* Nobody sends; the time limit of stalls ends the job on both ranks. */
static int gives_up(int rank, int size, void *arg)
{
    char x;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = rank == 0 ? hvd_recv(&x, 1, 1, 4, 0, NULL) : hvd_barrier("b");
    bool named = strstr(hvd_error(), "with tag 4: ");
    if (rc != (rank == 0 ? -ETIMEDOUT : -ECONNRESET) || !named)
        rc = FAIL("%d (%s)", rc, hvd_error());
    else
        rc = 0;
    hvd_shutdown();
    return rc;
}

static void *close_later(void *arg)
{
    nap_ms(2500);
    *(int *)arg = hvd_shutdown();
    return NULL;
}

/* A receive that nobody sends to is reported, and ends with the engine. */
static int stalls(int rank, int size, void *arg)
{
    char x;
    int down = -1, rc;
    pthread_t thread;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 1)
        return nap_ms(3000), hvd_shutdown() != 0;
    if (pthread_create(&thread, NULL, close_later, &down) != 0)
        return FAIL("no thread");
    rc = expect(hvd_recv(&x, 1, 1, 4, 0, NULL), -ESHUTDOWN, "");
    pthread_join(thread, NULL);
    return rc ? rc : down;
}

static void test_gives_up(void **state)
{
    const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1",
                               "HVD_STALL_SHUTDOWN_TIME_SECONDS=1", NULL};
    const struct world_options o = {.size = 2, .env = env};
    assert_int_equal(world_run_options(&o, gives_up, NULL), 0);
}

static void test_stalls(void **state)
{
    const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options o = {.size = 2, .env = env};
    assert_int_equal(world_run_options(&o, stalls, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_not_direct),
        cmocka_unit_test(test_any),    cmocka_unit_test(test_ring),
        cmocka_unit_test(test_flood),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_leaves), cmocka_unit_test(test_dies),
        cmocka_unit_test(test_stalls), cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
