/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages when ranks shut down: a receive from any rank when all others have, and what a rank has
 * sent before its farewell. A blocking receive that stalls.
 *
 * timeout: 150
 * takes: 30 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* The other ranks shut down while rank 0 waits for a message of any of them. */
static int nobody(int rank, int size, void *arg)
{
    char x;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank > 0) {
        nap_ms(100 * (unsigned)rank);
        return hvd_shutdown() != 0;
    }
    uint64_t begin = clock_ns();
    int rc = hvd_recv(&x, 1, HVD_ANY, 4, 0, NULL);
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), "all other ranks have shut down"))
        return FAIL("%d (%s)", rc, hvd_error());
    if (clock_ns() - begin > 4 * CLOCK_S)
        return FAIL("it has taken %g s", (double)(clock_ns() - begin) / 1e9);
    rc = hvd_recv(&x, 1, HVD_ANY, 4, 0, NULL);
    if (rc != -ESHUTDOWN)
        return FAIL("%d (%s)", rc, hvd_error());
    rc = hvd_send("", 1, 1, 4, 0);
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), "rank 1 has shut down"))
        return FAIL("a send: %d (%s)", rc, hvd_error());
    return hvd_shutdown() != 0;
}

static void test_nobody(void **state)
{
    const struct world_options o = {.size = 3, .timeout_s = 20};
    assert_int_equal(world_run_options(&o, nobody, NULL), 0);
}

/* Rank 0 takes in a message that it does not want yet. Long after the sender's farewell it receives
 * that one, and one that it had not taken in. */
static int later(int rank, int size, void *arg)
{
    char x[100] = "", first[100] = "first", third[100] = "third";
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        if (hvd_send(first, 100, 0, 1, 0) != 0 || hvd_send("second", 7, 0, 2, 0) != 0 ||
            hvd_recv(x, 1, 0, 9, 0, NULL) != 0 || hvd_send(third, 50, 0, 3, 0) != 0)
            return FAIL("%s", hvd_error());
        return hvd_shutdown() != 0;
    }
    int rc = hvd_recv(x, 100, 1, 2, 0, NULL);
    if (rc != 0 || hvd_send("", 1, 1, 9, 0) != 0)
        return FAIL("%s", hvd_error());
    nap_ms(1500);
    const struct hvd_message own = {
        .direction = HVD_SEND, .peer = 0, .device = -1, .data = first, .bytes = 1};
    hvd_handle h; /* has this rank look at the state of rank 1, without reading from it */
    if (hvd_exchange(&own, 1, &h) != 0 || hvd_recv(x, 1, 0, 0, 0, NULL) != 0 || hvd_wait(h) != 0)
        return FAIL("%s", hvd_error());
    if (hvd_recv(x, 100, 1, 1, 0, NULL) != 0 || strcmp(x, "first") != 0)
        return FAIL("%s (%s)", x, hvd_error());
    if (hvd_recv(x, 100, 1, 3, 0, NULL) != 0 || strcmp(x, "third") != 0)
        return FAIL("%s (%s)", x, hvd_error());
    return hvd_shutdown() != 0;
}

static void test_later(void **state)
{
    const struct world_options o = {.size = 2, .timeout_s = 20};
    assert_int_equal(world_run_options(&o, later, NULL), 0);
}

/* Rank 2 shuts down when the kernel has taken its messages, which need longer than hvd_shutdown()
 * waits to get through. Rank 1 has shut down long before. */
static int slow(int rank, int size, void *arg)
{
    enum { N = 60, BYTES = 16000 };
    static char data[BYTES];
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
    nap_ms(rank == 2 ? 2500 : 0);
    for (int i = 0; i < N && rank != 1 && rc == 0; i++)
        if ((rank == 2 ? hvd_send(data, BYTES, 0, 1, 0) : hvd_recv(data, BYTES, 2, 1, 0, NULL)) !=
            0)
            rc = FAIL("message %d: %s", i, hvd_error());
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_slow(void **state)
{
    if (!world_can_netns("multi/messages_ends/slow"))
        return;
    const struct world_options o = {.size = 3,
                                    .hosts = 3,
                                    .timeout_s = 60,
                                    .shape = "tbf rate 700kbit burst 20000 latency 20000ms"};
    assert_int_equal(world_run_options(&o, slow, NULL), 0);
}

/* A blocking receive after a time in which this rank was idle is reported, too. */
static int stalls(int rank, int size, void *arg)
{
    struct hvd_stats stats = {.size = sizeof(stats)};
    char x = 0;
    if (hvd_init() != 0 || hvd_barrier("all") != 0)
        return FAIL("%s", hvd_error());
    nap_ms(rank == 0 ? 1500 : 4500);
    int rc = rank == 0 ? hvd_recv(&x, 1, 1, 4, 0, NULL) : hvd_send(&x, 1, 0, 4, 0);
    if (rc != 0 || hvd_stats(&stats) != 0)
        return FAIL("%s", hvd_error());
    if (rank == 0 && stats.stalls == 0)
        return FAIL("there was no report");
    return hvd_shutdown() != 0;
}

static void test_stalls(void **state)
{
    const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options o = {.size = 2, .timeout_s = 20, .env = env};
    assert_int_equal(world_run_options(&o, stalls, NULL), 0);
}

/* ---- a buffer that its owner has got back ---------------------------------------------------- */

enum { LARGE = 64 << 20 };

static void *send_large(void *arg)
{
    uint8_t *data = arg;
    memset(data, 1, LARGE);
    if (hvd_send(data, LARGE, 1, 1, 0) != 0)
        memset(data, 2, LARGE); /* it may do that now */
    return NULL;
}

/* Rank 0 shuts down while rank 1 receives from its memory: that fails, or has the right bytes. */
static int taken_back(int rank, int size, void *arg)
{
    uint8_t *data = malloc(LARGE);
    char x = 0;
    int rc = 0;
    pthread_t thread;
    if (!data || hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        memset(data, 0, LARGE);
        if (hvd_send(&x, 1, 0, 2, 0) != 0)
            return FAIL("%s", hvd_error());
        rc = hvd_recv(data, LARGE, 0, 1, 0, NULL);
        for (size_t i = 0; rc == 0 && i < LARGE; i++)
            if (data[i] != 1)
                return FAIL("byte %zu is %d", i, data[i]);
        rc = rc == 0 || rc == -ESHUTDOWN ? 0 : FAIL("%d (%s)", rc, hvd_error());
    } else {
        if (pthread_create(&thread, NULL, send_large, data) != 0 ||
            hvd_recv(&x, 1, 1, 2, 0, NULL) != 0)
            return FAIL("%s", hvd_error());
        nap_ms(3);
    }
    rc = hvd_shutdown() != 0 ? FAIL("%s", hvd_error()) : rc;
    if (rank == 0)
        pthread_join(thread, NULL);
    free(data);
    return rc;
}

static void test_taken_back(void **state)
{
    const struct world_options o = {.size = 2, .timeout_s = 40};
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_run_options(&o, taken_back, NULL), 0);
}

/* ---- many small messages --------------------------------------------------------------------- */

/* Rank 1 sends empty messages that rank 0 takes in, but does not receive: only so many end before
 * they are received, which bounds rank 0's memory. */
static int empty(int rank, int size, void *arg)
{
    enum { N = 60000 };
    static hvd_handle handles[N];
    char x = 0;
    int done = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    const struct hvd_message m = {.direction = HVD_SEND, .peer = 0, .tag = 1, .device = -1};
    for (int i = 0; rank == 1 && i < N; i++)
        if (hvd_exchange(&m, 1, &handles[i]) != 0)
            return FAIL("%s", hvd_error());
    if ((rank == 1 ? hvd_send(&x, 1, 0, 9, 0) : hvd_recv(&x, 1, 1, 9, 0, NULL)) != 0)
        return FAIL("%s", hvd_error());
    if (rank == 0)
        nap_ms(1000);
    for (int i = 0; rank == 1 && i < N; i++)
        done += hvd_poll(handles[i]) == 1;
    if (rank == 1 && (done == 0 || done > 10000))
        return FAIL("%d of %d sends have ended", done, N);
    for (int i = 0; i < N; i++)
        if ((rank == 1 ? hvd_wait(handles[i]) : hvd_recv(NULL, 0, 1, 1, 0, NULL)) != 0)
            return FAIL("message %d: %s", i, hvd_error());
    return hvd_shutdown() != 0;
}

static void test_empty(void **state)
{
    const struct world_options o = {.size = 2, .timeout_s = 40};
    assert_int_equal(world_run_options(&o, empty, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody), cmocka_unit_test(test_later),
        cmocka_unit_test(test_slow),   cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
