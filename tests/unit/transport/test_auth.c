/* SPDX-License-Identifier: Apache-2.0
 *
 * auth: the handshake between two ends, and against wrong keys, replayed and reflected messages,
 * garbage, other versions, other rosters, slow and silent peers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/transport/auth.h"

static const uint8_t key[MAC_KEY_SIZE] = {1, 2, 3}, other_key[MAC_KEY_SIZE] = {9};
static const struct auth_id from0to1 = {.cls = 1, .epoch = 4, .size = 8, .from = 0, .to = 1};
static const struct auth_id at1 = {.epoch = 4, .size = 8, .to = 1};

struct shake {
    struct auth c, a;
    int fd[2]; /* [0] the connector's end, [1] the acceptor's end */
    int rc[2];
    struct err err[2];
};

static void shake_init(struct shake *s, const struct auth_id *id, const uint8_t *ckey,
                       const uint8_t *akey)
{
    *s = (struct shake){.rc = {1, 1}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s->fd), 0);
    auth_connect(&s->c, ckey, id, deadline_in_ms(20000));
    auth_accept(&s->a, akey, &at1, deadline_in_ms(20000));
}

static void shake_run(struct shake *s)
{
    bool gone = false;
    for (int i = 0; i < 100; i++) {
        if (s->rc[0] == 1)
            s->rc[0] = auth_progress(&s->c, s->fd[0], &s->err[0]);
        if (s->rc[0] == 0 && !gone) {
            assert_int_equal(auth_go(s->fd[0]), 0);
            gone = true;
        }
        if (s->rc[1] == 1)
            s->rc[1] = auth_progress(&s->a, s->fd[1], &s->err[1]);
        if (s->rc[1] < 0 && s->fd[1] >= 0) {
            close(s->fd[1]);
            s->fd[1] = -1;
        }
        if (s->rc[0] < 0 && s->fd[0] >= 0) {
            close(s->fd[0]);
            s->fd[0] = -1;
        }
    }
}

static void shake_fini(struct shake *s)
{
    for (int i = 0; i < 2; i++)
        if (s->fd[i] >= 0)
            close(s->fd[i]);
}

static void test_good(void **state)
{
    struct shake s;
    char rest[16];
    shake_init(&s, &from0to1, key, key);
    shake_run(&s);
    assert_int_equal(s.rc[0], 0);
    assert_int_equal(s.rc[1], 0);
    assert_int_equal(s.a.id.from, 0);
    assert_int_equal(s.a.id.cls, 1);
    /* the handshake has not read any byte after it */
    assert_int_equal(write(s.fd[0], "payload", 7), 7);
    assert_int_equal(recv(s.fd[1], rest, sizeof(rest), 0), 7);
    assert_memory_equal(rest, "payload", 7);
    assert_int_equal(recv(s.fd[0], rest, sizeof(rest), 0), -1);
    shake_fini(&s);
}

/* The acceptor waits until the connector confirms that it uses this connection. */
static void test_not_without_go(void **state)
{
    struct shake s;
    shake_init(&s, &from0to1, key, key);
    for (int i = 0; i < 20; i++) {
        s.rc[0] = s.rc[0] == 1 ? auth_progress(&s.c, s.fd[0], NULL) : s.rc[0];
        s.rc[1] = auth_progress(&s.a, s.fd[1], &s.err[1]);
    }
    assert_int_equal(s.rc[0], 0);
    assert_int_equal(s.rc[1], 1);
    close(s.fd[0]);
    s.fd[0] = -1;
    assert_int_equal(auth_progress(&s.a, s.fd[1], &s.err[1]), -ECONNRESET);
    assert_true(auth_left_politely(&s.a));
    shake_fini(&s);
}

static void test_wrong_key(void **state)
{
    struct shake s;
    shake_init(&s, &from0to1, other_key, key);
    shake_run(&s);
    assert_int_equal(s.rc[1], -EACCES);
    assert_non_null(strstr(s.err[1].msg, "another key"));
    assert_int_equal(s.rc[0], -ECONNRESET);
    shake_fini(&s);
}

static void expect_misfit(struct auth_id id)
{
    struct shake s;
    shake_init(&s, &id, key, key);
    shake_run(&s);
    assert_int_equal(s.rc[1], -EACCES);
    assert_true(s.rc[0] < 0);
    shake_fini(&s);
}

static void test_misfits(void **state)
{
    struct auth_id id;
    id = from0to1, id.epoch = 5;
    expect_misfit(id);
    id = from0to1, id.size = 9;
    expect_misfit(id);
    id = from0to1, id.to = 2;
    expect_misfit(id);
    id = from0to1, id.from = 8;
    expect_misfit(id);
    id = from0to1, id.from = 1;
    expect_misfit(id);
    id = from0to1, id.cls = AUTH_CLASSES;
    expect_misfit(id);
}

/* A recording of all that a connector sent in a valid handshake is sent to a new acceptor. */
static void test_replay(void **state)
{
    struct auth c, a;
    uint8_t said[256], heard[256];
    size_t n = 0;
    int fd[2], tap[2], rc = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tap), 0);
    auth_connect(&c, key, &from0to1, deadline_in_ms(20000));
    auth_accept(&a, key, &at1, deadline_in_ms(20000));
    /* connector on fd[0], acceptor on tap[1]; the test forwards the bytes and records them */
    for (int i = 0; i < 50 && rc == 1; i++) {
        ssize_t got;
        auth_progress(&c, fd[0], NULL);
        if ((got = recv(fd[1], said + n, sizeof(said) - n, 0)) > 0) {
            assert_int_equal(send(tap[0], said + n, (size_t)got, 0), got);
            n += (size_t)got;
        }
        rc = auth_progress(&a, tap[1], NULL);
        if ((got = recv(tap[0], heard, sizeof(heard), 0)) > 0)
            assert_int_equal(send(fd[1], heard, (size_t)got, 0), got);
    }
    assert_int_equal(n, AUTH_HELLO_SIZE + MAC_SIZE);
    auth_accept(&a, key, &at1, deadline_in_ms(20000));
    said[n++] = 'G';
    assert_int_equal(send(tap[0], said, n, 0), (ssize_t)n);
    struct err err;
    do {
        rc = auth_progress(&a, tap[1], &err);
    } while (rc == 1);
    assert_int_equal(rc, -EACCES);
    for (int i = 0; i < 2; i++) {
        close(fd[i]);
        close(tap[i]);
    }
}

/* A peer that sends a connector's own bytes back is refused: first its greeting, then its proof. */
static void test_reflection(void **state)
{
    struct auth c;
    uint8_t bytes[256];
    int fd[2], rc = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    auth_connect(&c, key, &from0to1, deadline_in_ms(20000));
    for (int i = 0; i < 50 && rc == 1; i++) {
        rc = auth_progress(&c, fd[0], NULL);
        ssize_t got = recv(fd[1], bytes, sizeof(bytes), 0);
        if (got > 0)
            assert_int_equal(send(fd[1], bytes, (size_t)got, 0), got);
    }
    assert_int_equal(rc, -EPROTO);
    /* a valid challenge, then the connector's own proof sent back */
    auth_connect(&c, key, &from0to1, deadline_in_ms(20000));
    close(fd[0]);
    close(fd[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    assert_int_equal(auth_progress(&c, fd[0], NULL), 1);
    assert_int_equal(recv(fd[1], bytes, AUTH_HELLO_SIZE, 0), AUTH_HELLO_SIZE);
    bytes[7] = 2;
    assert_int_equal(send(fd[1], bytes, AUTH_CHALLENGE_SIZE, 0), AUTH_CHALLENGE_SIZE);
    assert_int_equal(auth_progress(&c, fd[0], NULL), 1);
    assert_int_equal(recv(fd[1], bytes, MAC_SIZE, 0), MAC_SIZE);
    assert_int_equal(send(fd[1], bytes, MAC_SIZE, 0), MAC_SIZE);
    assert_int_equal(auth_progress(&c, fd[0], NULL), -EACCES);
    close(fd[0]);
    close(fd[1]);
}

static int feed(const void *bytes, size_t n, struct err *err, struct auth *a)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    auth_accept(a, key, &at1, deadline_in_ms(20000));
    assert_int_equal(send(fd[0], bytes, n, 0), (ssize_t)n);
    shutdown(fd[0], SHUT_WR);
    int rc = auth_progress(a, fd[1], err);
    close(fd[0]);
    close(fd[1]);
    return rc;
}

static void test_garbage(void **state)
{
    struct auth a;
    struct err err;
    assert_int_equal(feed("GET / HTTP/1.1\r\n\r\n", 18, &err, &a), -EPROTO);
    assert_non_null(strstr(err.msg, "did not send hvd's greeting"));
    assert_int_equal(feed("HVdh", 4, &err, &a), -ECONNRESET);
    assert_false(auth_left_politely(&a));
    assert_int_equal(feed("", 0, &err, &a), -ECONNRESET);
    assert_true(auth_left_politely(&a));
}

static void test_version(void **state)
{
    struct shake s;
    shake_init(&s, &from0to1, key, key);
    s.c.hello[4] = s.c.out[4] = 99;
    shake_run(&s);
    assert_int_equal(s.rc[1], -EPROTO);
    assert_non_null(strstr(s.err[1].msg, "version 99"));
    assert_int_equal(s.rc[0], -EPROTO);
    shake_fini(&s);
}

static void test_slow(void **state)
{
    struct auth a;
    struct err err;
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    auth_accept(&a, key, &at1, deadline_in_ms(20000));
    assert_int_equal(auth_progress(&a, fd[1], &err), 1);
    assert_int_equal(send(fd[0], "HV", 2, 0), 2);
    assert_int_equal(auth_progress(&a, fd[1], &err), 1);
    a.deadline = clock_ns() - 1;
    assert_int_equal(auth_progress(&a, fd[1], &err), -ETIMEDOUT);
    close(fd[0]);
    close(fd[1]);
}

/* What came in time is read by an acceptor that had no processor until after its deadline. */
static void test_read_late(void **state)
{
    struct shake s;
    shake_init(&s, &from0to1, key, key);
    s.a.deadline = clock_ns() + CLOCK_S;
    assert_int_equal(auth_progress(&s.c, s.fd[0], &s.err[0]), 1);
    assert_int_equal(auth_progress(&s.a, s.fd[1], &s.err[1]), 1);
    assert_int_equal(auth_progress(&s.c, s.fd[0], &s.err[0]), 1);
    assert_false(auth_has_proven(&s.a));
    assert_int_equal(auth_progress(&s.a, s.fd[1], &s.err[1]), 1);
    assert_true(auth_has_proven(&s.a));
    assert_true(s.a.deadline > clock_ns() + 30 * CLOCK_S);
    assert_int_equal(auth_progress(&s.c, s.fd[0], &s.err[0]), 0);
    assert_int_equal(auth_go(s.fd[0]), 0);
    s.a.deadline = clock_ns() - 1;
    assert_int_equal(auth_progress(&s.a, s.fd[1], &s.err[1]), 0);
    shake_fini(&s);
}

/* If any bit of the connector's messages is flipped, the handshake fails. */
static void test_flipped_bits(void **state)
{
    for (size_t bit = 0; bit < 8 * (AUTH_HELLO_SIZE + MAC_SIZE); bit += 3) {
        struct shake s;
        shake_init(&s, &from0to1, key, key);
        if (bit < 8 * AUTH_HELLO_SIZE) {
            s.c.out[bit / 8] ^= (uint8_t)(1 << bit % 8);
        } else {
            assert_int_equal(auth_progress(&s.c, s.fd[0], NULL), 1);
            assert_int_equal(auth_progress(&s.a, s.fd[1], NULL), 1);
            uint8_t mac[MAC_SIZE];
            assert_int_equal(auth_progress(&s.c, s.fd[0], NULL), 1);
            assert_int_equal(recv(s.fd[1], mac, sizeof(mac), 0), sizeof(mac));
            mac[bit / 8 - AUTH_HELLO_SIZE] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(send(s.fd[0], mac, sizeof(mac), 0), sizeof(mac));
        }
        shake_run(&s);
        assert_true(s.rc[1] < 0);
        assert_true(s.rc[0] < 0);
        shake_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_not_without_go),
        cmocka_unit_test(test_wrong_key),    cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_replay),       cmocka_unit_test(test_reflection),
        cmocka_unit_test(test_garbage),      cmocka_unit_test(test_version),
        cmocka_unit_test(test_slow),         cmocka_unit_test(test_read_late),
        cmocka_unit_test(test_flipped_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
