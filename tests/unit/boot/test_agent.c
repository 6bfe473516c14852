/* SPDX-License-Identifier: Apache-2.0
 *
 * test_agent: the rank's side of the agent's bootstrap; the agent is the other end of a socketpair
 * in this process, with the frames of base/ctl.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/boot/agent.h"

struct fixture {
    int fds[2]; /* [0] the rank's end, [1] the agent's end */
    struct ctl agent;
    struct boot boot;
    struct err err;
};

static int setup(void **state)
{
    char text[16];
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f || socketpair(AF_UNIX, SOCK_STREAM, 0, f->fds) < 0)
        return -1;
    ctl_init(&f->agent, f->fds[1]);
    snprintf(text, sizeof(text), "%d", f->fds[0]);
    setenv("HVD_AGENT_FD", text, 1);
    setenv("HVD_RANK", "1", 1);
    setenv("HVD_SIZE", "3", 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    boot_fini(&f->boot);
    ctl_fini(&f->agent);
    close(f->fds[0]);
    if (f->fds[1] >= 0)
        close(f->fds[1]);
    free(f);
    unsetenv("HVD_AGENT_FD");
    unsetenv("HVD_RANK");
    unsetenv("HVD_SIZE");
    return 0;
}

static void put_roster(struct buf *body, uint32_t rank, uint32_t size)
{
    buf_put_u32(body, 5);
    buf_put_u32(body, rank);
    buf_put_u32(body, size);
    for (int i = 0; i < BOOT_KEY_SIZE; i++)
        buf_put_u8(body, (uint8_t)i);
    buf_put_u32(body, 9);
    buf_put_u64(body, 1ULL << 40);
    for (uint32_t r = 0; r < size; r++) {
        buf_put_u8(body, (r < 2 ? CTL_LOCAL : 0) | (r == 1 ? CTL_NEW : 0));
        buf_put_u32(body, 70 + r);
        buf_put_u32(body, r + 1);
        for (uint32_t i = 0; i <= r; i++)
            buf_put_u8(body, (uint8_t)(r * 16 + i));
    }
}

static int exchange_in(struct fixture *f, uint64_t ms)
{
    struct buf card = {0};
    buf_put(&card, "card", 4);
    int rc = boot_exchange(&f->boot, &card, deadline_in_ms(ms), &f->err);
    buf_fini(&card);
    return rc;
}

/* The agent says that its coordinator is away: the wait is longer by that time, and no more. */
static void test_away(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0}, broken = {0};
    buf_put_u32(&body, 150);
    buf_put_u8(&broken, 1);
    assert_int_equal(ctl_send(&f->agent, CTL_AWAY, &body, NULL, 0), 0);
    assert_int_equal(ctl_send(&f->agent, CTL_AWAY, &broken, NULL, 0), 0);
    assert_int_equal(ctl_send(&f->agent, CTL_AWAY, &body, NULL, 0), 0);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    uint64_t begin = clock_ns();
    assert_int_equal(exchange_in(f, 50), -ETIMEDOUT);
    assert_true(clock_ns() - begin >= 350 * CLOCK_MS);
    assert_int_equal(boot_extended(&f->boot, 1000), 1000 + 300 * CLOCK_MS);
    assert_true(boot_extended(&f->boot, UINT64_MAX) == UINT64_MAX);
    assert_int_equal(exchange_in(f, 50), -ETIMEDOUT);
    assert_int_equal(f->boot.away, 0);
    buf_fini(&body);
    buf_fini(&broken);
}

static int exchange(struct fixture *f)
{
    return exchange_in(f, 20000);
}

static void test_roster(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    struct ctl_frame hello;
    int pair[2];
    put_roster(&body, 1, 3);
    /* frames of an earlier hvd_init() come first, and their descriptor is closed */
    assert_int_equal(pipe(pair), 0);
    assert_int_equal(ctl_send(&f->agent, CTL_SHARE, &body, &pair[1], 1), 0);
    close(pair[1]);
    assert_int_equal(ctl_send(&f->agent, CTL_ROSTER, &body, NULL, 0), 0);
    assert_int_equal(ctl_send(&f->agent, CTL_SHARE, &body, NULL, 0), 0);

    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    assert_string_equal(f->boot.ops->name, "agent");
    assert_int_equal(f->boot.rank, 1);
    assert_int_equal(f->boot.size, 3);
    assert_true(f->boot.has_key);
    assert_true(fcntl(f->fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(exchange(f), 0);
    assert_int_equal(f->boot.epoch, 5);
    assert_int_equal(f->boot.key[31], 31);
    assert_int_equal(f->boot.change, 9);
    assert_int_equal(f->boot.departed_done, 1ULL << 40);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(f->boot.cards[r].len, r + 1);
        assert_int_equal(f->boot.cards[r].data[r], r * 16 + r);
        assert_int_equal(f->boot.local[r], r < 2);
        assert_int_equal(f->boot.is_new[r], r == 1);
        assert_int_equal(f->boot.members[r], 70 + r);
    }
    char byte;
    assert_int_equal(read(pair[0], &byte, 1), 0);
    close(pair[0]);

    assert_int_equal(ctl_wait(&f->agent, &hello, deadline_in_ms(20000)), 0);
    assert_int_equal(hello.type, CTL_HELLO);
    assert_int_equal(hello.len, 2 + 4 + 1 + 4 + 4);
    assert_int_equal(hello.body[6], CTL_JOIN);
    assert_memory_equal(hello.body + 11, "card", 4);

    /* the frame after the roster stays in the socket for its next reader */
    struct ctl next;
    struct ctl_frame share;
    ctl_init(&next, f->boot.agent_fd);
    assert_int_equal(ctl_wait(&next, &share, deadline_in_ms(20000)), 0);
    assert_int_equal(share.type, CTL_SHARE);
    ctl_fini(&next);

    /* the process can call hvd_init() again */
    boot_fini(&f->boot);
    assert_int_equal(ctl_send(&f->agent, CTL_ROSTER, &body, NULL, 0), 0);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    assert_int_equal(exchange(f), 0);

    /* a survivor of epoch 5 reports why it asks, and its epoch */
    f->boot.why = CTL_REVOKED;
    assert_int_equal(ctl_send(&f->agent, CTL_ROSTER, &body, NULL, 0), 0);
    assert_int_equal(exchange(f), 0);
    assert_int_equal(ctl_wait(&f->agent, &hello, deadline_in_ms(20000)), 0);
    assert_int_equal(ctl_wait(&f->agent, &hello, deadline_in_ms(20000)), 0);
    assert_int_equal(hello.body[6], CTL_REVOKED);
    assert_int_equal(hello.body[7], 5);
    buf_fini(&body);
}

static void put_numbers(struct buf *body, uint32_t rank, uint32_t size)
{
    const uint32_t words[] = {5, rank, size, 7, 2, 1, 2};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        buf_put_u32(body, words[i]);
}

/* The agent sends numbers, and later the roster. Then numbers only, until the wait times out or
 * is cancelled. */
static void test_numbers(void **state)
{
    struct fixture *f = *state;
    struct buf numbers = {0}, roster = {0};
    struct ctl_frame hello;
    _Atomic int cancel = 1;
    put_numbers(&numbers, 3, 4);
    put_roster(&roster, 1, 3);
    setenv("HVD_ELASTIC", "1", 1);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    unsetenv("HVD_ELASTIC");
    assert_int_equal(ctl_send(&f->agent, CTL_NUMBERS, &numbers, NULL, 0), 0);
    assert_int_equal(exchange(f), 1);
    const struct boot_numbers *p = &f->boot.numbers;
    assert_true(p->epoch == 5 && p->rank == 3 && p->size == 4 && p->local_rank == 7);
    assert_true(p->local_size == 2 && p->cross_rank == 1 && p->cross_size == 2);
    f->boot.why = CTL_ENTER;
    assert_int_equal(ctl_send(&f->agent, CTL_NUMBERS, &numbers, NULL, 0), 0);
    assert_int_equal(ctl_send(&f->agent, CTL_ROSTER, &roster, NULL, 0), 0);
    assert_int_equal(exchange(f), 0);
    assert_int_equal(f->boot.rank, 1);
    assert_int_equal(ctl_wait(&f->agent, &hello, deadline_in_ms(20000)), 0);
    assert_int_equal(hello.body[6], CTL_JOIN);
    assert_int_equal(ctl_wait(&f->agent, &hello, deadline_in_ms(20000)), 0);
    assert_int_equal(hello.body[6], CTL_ENTER);
    assert_int_equal(hello.body[7], 0); /* the rank was in no epoch */
    assert_int_equal(exchange_in(f, 300), -ETIMEDOUT);
    assert_non_null(strstr(f->err.msg, "reached no step boundary"));
    f->boot.cancel = &cancel;
    assert_int_equal(exchange(f), -ESHUTDOWN);
    buf_fini(&numbers);
    buf_fini(&roster);
}

/* Numbers that are cut, that have a byte too many, or whose ranks are out of range. */
static void test_broken_numbers(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    put_numbers(&body, 3, 4);
    for (size_t n = 0; n < body.len; n++)
        assert_int_equal(boot_agent_numbers(&f->boot, body.data, n, &f->err), -EPROTO);
    assert_int_equal(boot_agent_numbers(&f->boot, body.data, body.len, &f->err), 0);
    buf_put_u8(&body, 0);
    assert_int_equal(boot_agent_numbers(&f->boot, body.data, body.len, &f->err), -EPROTO);
    const uint32_t bad[][2] = {{4, 4}, {0, 0}, {0, 1}, {1u << 31, 4}, {0, 1u << 31}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        buf_reset(&body);
        put_numbers(&body, bad[i][0], bad[i][1]);
        assert_int_equal(boot_agent_numbers(&f->boot, body.data, body.len, &f->err), -EPROTO);
    }
    buf_fini(&body);
}

static void test_no_roster(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    assert_int_equal(exchange_in(f, 300), -ETIMEDOUT);
    assert_non_null(strstr(f->err.msg, "not every rank has started"));
}

static void test_agent_gone(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    close(f->fds[1]);
    f->fds[1] = -1;
    assert_true(exchange(f) < 0);
    assert_non_null(strstr(f->err.msg, "agent"));
}

static void test_rank_lost(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    buf_put_u32(&body, 2);
    buf_put_u32(&body, (uint32_t)-9);
    assert_int_equal(ctl_send(&f->agent, CTL_LOST, &body, NULL, 0), 0);
    buf_fini(&body);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    assert_int_equal(exchange(f), -ECONNRESET);
    assert_non_null(strstr(f->err.msg, "rank 2 ended (signal 9)"));
}

/* If the agent's message of a loss has a text, the error has that text instead of the code. */
static void test_rank_lost_text(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    buf_put_u32(&body, 2);
    buf_put_u32(&body, 3);
    buf_put(&body, "rank 2 on h1 (pid 7) exited with code 3", 39);
    assert_int_equal(ctl_send(&f->agent, CTL_LOST, &body, NULL, 0), 0);
    buf_fini(&body);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    assert_int_equal(exchange(f), -ECONNRESET);
    assert_non_null(strstr(f->err.msg, "started: rank 2 on h1 (pid 7) exited with code 3"));
}

/* A roster that is cut anywhere, and a roster with a byte too many. */
static void test_broken_rosters(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    put_roster(&body, 1, 3);
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    for (size_t n = 0; n < body.len; n++)
        assert_int_equal(boot_agent_roster(&f->boot, body.data, n, &f->err), -EPROTO);
    buf_put_u8(&body, 0);
    assert_int_equal(boot_agent_roster(&f->boot, body.data, body.len, &f->err), -EPROTO);
    buf_reset(&body);
    put_roster(&body, 3, 3);
    assert_int_equal(boot_agent_roster(&f->boot, body.data, body.len, &f->err), -EPROTO);
    buf_fini(&body);
}

/* The members 70, 71 ... with these places; without CTL_PLACE where the place is the rank. */
static void put_places(struct buf *body, const uint32_t *places, uint32_t size)
{
    const uint8_t key[BOOT_KEY_SIZE] = {0};
    buf_reset(body);
    buf_put_u32(body, 5);
    buf_put_u32(body, 0);
    buf_put_u32(body, size);
    buf_put(body, key, sizeof(key));
    buf_put_u32(body, 9);
    buf_put_u64(body, 0);
    for (uint32_t r = 0; r < size; r++) {
        buf_put_u8(body, places[r] == r ? 0 : CTL_PLACE);
        buf_put_u32(body, 70 + r);
        if (places[r] != r)
            buf_put_u32(body, places[r]);
        buf_put_u32(body, 0);
    }
}

static void test_places(void **state)
{
    static const uint32_t good[] = {0, 2, 7}, bad[][3] = {{0, 0, 2},
                                                          {1, 1, 2},
                                                          {3, 2, 4},
                                                          {0, 1, BOOT_SIZE_MAX},
                                                          {0, 1, UINT32_MAX}};
    struct fixture *f = *state;
    struct buf body = {0};
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    put_places(&body, good, 3);
    assert_int_equal(boot_agent_roster(&f->boot, body.data, body.len, &f->err), 0);
    for (int r = 0; r < 3; r++)
        assert_int_equal(f->boot.places[r], good[r]);
    for (size_t n = 0; n < body.len; n++)
        assert_int_equal(boot_agent_roster(&f->boot, body.data, n, &f->err), -EPROTO);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put_places(&body, bad[i], 3);
        assert_int_equal(boot_agent_roster(&f->boot, body.data, body.len, &f->err), -EPROTO);
        assert_non_null(strstr(f->err.msg, "place"));
    }
    /* A joiner's numbers: the place comes last, if it is not the rank. */
    const uint32_t numbers[][2] = {{2, 1}, {3, 0}, {7, 0}, {BOOT_SIZE_MAX, 1}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        buf_reset(&body);
        put_numbers(&body, 3, 4);
        assert_int_equal(boot_agent_numbers(&f->boot, body.data, body.len, &f->err), 0);
        assert_int_equal(f->boot.numbers.place, 3);
        buf_put_u32(&body, numbers[i][0]);
        assert_int_equal(boot_agent_numbers(&f->boot, body.data, body.len, &f->err),
                         numbers[i][1] ? -EPROTO : 0);
        assert_int_equal(f->boot.numbers.place, numbers[i][1] ? 3 : numbers[i][0]);
    }
    buf_fini(&body);
}

static void test_not_a_socket(void **state)
{
    struct fixture *f = *state;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char text[16];
    snprintf(text, sizeof(text), "%d", null);
    setenv("HVD_AGENT_FD", text, 1);
    int rc = boot_open(&f->boot, &f->err);
    assert_int_equal(rc, -EBADF);
    close(null);
    assert_non_null(strstr(f->err.msg, "is not the agent"));
    setenv("HVD_AGENT_FD", "x", 1);
    assert_int_equal(boot_open(&f->boot, &f->err), -EINVAL);
}

static void test_after_fork(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(boot_open(&f->boot, &f->err), 0);
    int fd = f->boot.agent_fd;
    boot_after_fork(&f->boot);
    assert_int_equal(f->boot.agent_fd, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

int main(void)
{
    alarm(290);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roster, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_roster, setup, teardown),
        cmocka_unit_test_setup_teardown(test_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rank_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rank_lost_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_rosters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_socket, setup, teardown),
        cmocka_unit_test_setup_teardown(test_after_fork, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
