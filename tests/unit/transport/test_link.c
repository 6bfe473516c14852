/* SPDX-License-Identifier: Apache-2.0
 *
 * link: two ends in one process over a real TCP connection on loopback: transfers in pieces,
 * cancelled, stale; control messages; nonsense; the end of a connection with and without goodbye.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/transport/link_private.h"

/* One end: as much of a mesh as a link needs. */
struct side {
    struct mesh mesh;
    struct mesh_net net;
    struct link *links[2 * LINK_CLASSES];
    bool left[2];
    struct link *link;
};

static void side_init(struct side *s, int rank)
{
    *s = (struct side){.mesh = {.rank = rank, .size = 2, .generation = 1, .net = &s->net}};
    s->net = (struct mesh_net){.mesh = &s->mesh,
                               .timer_at = UINT64_MAX,
                               .suspect = -1,
                               .links = s->links,
                               .left = s->left,
                               .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                               .wake = {.fd = eventfd(0, EFD_CLOEXEC)},
                               .timer = {.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)},
                               .agent_watch = {.fd = -1}};
    list_init(&s->net.pending);
    list_init(&s->net.dials);
    assert_int_equal(net_watch(&s->net, &s->net.timer, EPOLLIN), 0);
}

static void side_fini(struct side *s)
{
    for (int i = 0; i < 2 * LINK_CLASSES; i++)
        link_destroy(s->links[i]);
    net_unwatch(&s->net, &s->net.wake);
    net_unwatch(&s->net, &s->net.timer);
    close(s->net.epoll_fd);
}

/* A connected pair of TCP sockets with small buffers, so that transfers stop in the middle. */
static void tcp_pair(int ret[2])
{
    struct sock_addr a;
    int small = 65536;
    assert_int_equal(sock_parse_ip("127.0.0.1", &a, NULL), 0);
    int listener = sock_listen(&a, 1);
    assert_true(listener >= 0);
    ret[0] = sock_connect(&a);
    assert_true(ret[0] >= 0);
    while (sock_connected(ret[0]) == 1)
        usleep(100);
    while ((ret[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
        usleep(100);
    close(listener);
    for (int i = 0; i < 2; i++) {
        setsockopt(ret[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        setsockopt(ret[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    }
}

struct pair {
    struct side a, b; /* rank 0, rank 1 */
};

static void pair_init(struct pair *p, enum link_class cls)
{
    int fds[2];
    side_init(&p->a, 0);
    side_init(&p->b, 1);
    tcp_pair(fds);
    p->a.link = link_get(&p->a.net, 1, cls);
    p->b.link = link_get(&p->b.net, 0, cls);
    link_established(p->a.link, fds[0]);
    link_established(p->b.link, fds[1]);
}

static void pair_fini(struct pair *p)
{
    side_fini(&p->a);
    side_fini(&p->b);
}

static void turn(struct pair *p)
{
    assert_int_equal(mesh_progress(&p->a.mesh, NULL, NULL), 0);
    assert_int_equal(mesh_progress(&p->b.mesh, NULL, NULL), 0);
}

static uint8_t *pattern(size_t n, unsigned seed)
{
    uint8_t *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 13 + i / 255 + seed);
    return p;
}

/* Drives one message from a to b to its end. */
static void move(struct pair *p, uint64_t tag, const uint8_t *data, uint8_t *got, size_t len)
{
    struct xfer out, in;
    int sent = 1, come = 1;
    xfer_start(&out, p->a.link, tag, (void *)data, len);
    xfer_start(&in, p->b.link, tag, got, len);
    for (uint64_t end = deadline_in_ms(10000); sent || come;) {
        assert_false(deadline_passed(end));
        sent = xfer_send(&out, len);
        come = xfer_recv(&in);
        assert_true(sent >= 0 && come >= 0);
        turn(p);
    }
    assert_memory_equal(data, got, len);
}

static void move_one(struct pair *p, uint64_t tag, size_t len)
{
    uint8_t *data = pattern(len, (unsigned)tag), *got = calloc(1, len + 1);
    move(p, tag, data, got, len);
    free(data);
    free(got);
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 23, 24, 25, 4071, 4072, 4073, 4096, 65536, 1000003};
    struct pair p;
    pair_init(&p, LINK_DATA);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        move_one(&p, i, sizes[i]);
    assert_int_equal(link_peer(p.a.link), 1);
    pair_fini(&p);
}

static void test_small_ones_in_a_row(void **state)
{
    struct pair p;
    struct xfer out, in;
    pair_init(&p, LINK_DATA);
    for (uint32_t i = 0; i < 100; i++) {
        xfer_start(&out, p.a.link, i, &i, sizeof(i));
        assert_int_equal(xfer_send(&out, sizeof(i)), 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t got = 1000;
        xfer_start(&in, p.b.link, i, &got, sizeof(got));
        while (xfer_recv(&in) == 1)
            turn(&p);
        assert_int_equal(xfer_recv(&in), 0);
        assert_int_equal(got, i);
    }
    pair_fini(&p);
}

static void test_ready_grows(void **state)
{
    struct pair p;
    struct xfer out, in;
    enum { N = 50000 };
    uint8_t *data = pattern(N, 3), *got = calloc(1, N);
    pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, 1, data, N);
    xfer_start(&in, p.b.link, 1, got, N);
    assert_int_equal(xfer_send(&out, 0), 1);
    assert_int_equal(out.header_done, 0);
    for (size_t ready = 0; ready <= N; ready += 500) {
        uint64_t end = deadline_in_ms(5000);
        while (in.done < ready && !deadline_passed(end)) {
            assert_true(xfer_send(&out, ready) >= (ready < N));
            xfer_recv(&in);
            turn(&p);
        }
        assert_int_equal(in.done, ready);
        assert_memory_equal(data, got, ready);
    }
    assert_int_equal(xfer_send(&out, N), 0);
    assert_int_equal(xfer_recv(&in), 0);
    free(data);
    free(got);
    pair_fini(&p);
}

/* ---- cancelled ---- */

static void next_generation(struct pair *p)
{
    mesh_next_generation(&p->a.mesh);
    mesh_next_generation(&p->b.mesh);
}

static void test_cancel_in_the_middle(void **state)
{
    struct pair p;
    struct xfer out, in;
    enum { N = 3000000 };
    uint8_t *data = pattern(N, 3), *got = calloc(1, N);
    pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, 1, data, N);
    xfer_start(&in, p.b.link, 1, got, N);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(xfer_send(&out, N), 1);
        assert_int_equal(xfer_recv(&in), 1);
    }
    assert_true(out.done > 0 && out.done < N && in.done > 0);
    xfer_cancel_send(&out);
    xfer_cancel_recv(&in);
    free(data);
    free(got);
    next_generation(&p);
    move_one(&p, 1, 5000);
    move_one(&p, 2, 5);
    pair_fini(&p);
}

static void test_cancel_unseen(void **state)
{
    struct pair p;
    struct xfer out, in;
    uint8_t data[100] = {1}, got[100];
    pair_init(&p, LINK_DATA);
    /* nothing sent yet: as if it had never been */
    xfer_start(&out, p.a.link, 1, data, sizeof(data));
    xfer_cancel_send(&out);
    xfer_start(&in, p.b.link, 1, got, sizeof(got));
    assert_int_equal(xfer_recv(&in), 1);
    xfer_cancel_recv(&in);
    move_one(&p, 7, 10);
    /* sent whole, never asked for: stale later */
    for (int i = 0; i < 3; i++) {
        xfer_start(&out, p.a.link, 1, data, sizeof(data));
        assert_int_equal(xfer_send(&out, sizeof(data)), 0);
    }
    xfer_cancel_send(&out);
    next_generation(&p);
    move_one(&p, 8, 1000);
    pair_fini(&p);
}

static void test_peer_is_ahead(void **state)
{
    struct pair p;
    struct xfer out, in;
    uint8_t data[100] = {1}, got[100] = {0};
    pair_init(&p, LINK_DATA);
    mesh_next_generation(&p.a.mesh);
    xfer_start(&out, p.a.link, 9, data, sizeof(data));
    assert_int_equal(xfer_send(&out, sizeof(data)), 0);
    xfer_start(&in, p.b.link, 1, got, sizeof(got));
    for (int i = 0; i < 5; i++, usleep(1000))
        assert_int_equal(xfer_recv(&in), 1);
    xfer_cancel_recv(&in);
    mesh_next_generation(&p.b.mesh);
    xfer_start(&in, p.b.link, 9, got, sizeof(got));
    assert_int_equal(xfer_recv(&in), 0);
    assert_memory_equal(data, got, sizeof(data));
    pair_fini(&p);
}

/* Messages of random sizes in both halves of a transfer, some cancelled at random places. */
static void test_random(void **state)
{
    struct pair p;
    unsigned seed = 12345;
    pair_init(&p, LINK_DATA);
    for (uint64_t round = 0; round < 300; round++) {
        size_t len = (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 5000 : 200000);
        uint8_t *data = pattern(len, (unsigned)round), *got = calloc(1, len + 1);
        struct xfer out, in;
        int steps = rand_r(&seed) % 6;
        xfer_start(&out, p.a.link, round, data, len);
        xfer_start(&in, p.b.link, round, got, len);
        for (int i = 0; i < steps; i++) {
            if (rand_r(&seed) % 2)
                assert_true(xfer_send(&out, (size_t)rand_r(&seed) % (len + 1)) >= 0);
            if (rand_r(&seed) % 2)
                assert_true(xfer_recv(&in) >= 0);
        }
        if (rand_r(&seed) % 2) {
            xfer_cancel_send(&out);
            xfer_cancel_recv(&in);
            next_generation(&p);
        } else {
            int sent, come;
            do {
                sent = xfer_send(&out, len);
                come = xfer_recv(&in);
                assert_true(sent >= 0 && come >= 0);
                turn(&p);
            } while (sent || come);
            assert_memory_equal(data, got, len);
        }
        free(data);
        free(got);
    }
    pair_fini(&p);
}

/* ---- nonsense ---- */

static void expect_nonsense(struct pair *p, struct xfer *in)
{
    int rc;
    for (int i = 0; i < 1000 && (rc = xfer_recv(in)) == 1; i++)
        usleep(100);
    assert_int_equal(rc, -EPROTO);
    assert_int_equal(xfer_recv(in), -EPROTO);
    struct xfer out;
    uint8_t byte = 0;
    xfer_start(&out, p->b.link, 1, &byte, 1);
    assert_int_equal(xfer_send(&out, 1), -EPROTO);
}

static void wrong_message(uint64_t tag, size_t len)
{
    struct pair p;
    struct xfer out, in;
    uint8_t data[64] = {0};
    pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, tag, data, len);
    assert_int_equal(xfer_send(&out, len), 0);
    xfer_start(&in, p.b.link, 1, data, 32);
    expect_nonsense(&p, &in);
    pair_fini(&p);
}

static void test_wrong_tag(void **state)
{
    wrong_message(2, 32);
}

static void test_wrong_length(void **state)
{
    wrong_message(1, 31);
    wrong_message(1, 33);
}

static void test_garbage(void **state)
{
    struct pair p;
    struct xfer in;
    uint8_t data[32];
    pair_init(&p, LINK_DATA);
    assert_int_equal(write(p.a.link->watch.fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 28), 28);
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    pair_fini(&p);
}

static void test_own_tags(void **state)
{
    struct pair p;
    struct xfer in;
    uint8_t header[LINK_HEADER_SIZE], data[32];
    pair_init(&p, LINK_DATA);
    link_put_header(header, 1, LINK_TAG_OWN + 77, 0);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    pair_fini(&p);
    pair_init(&p, LINK_DATA);
    link_put_header(header, 1, LINK_TAG_LOST, LINK_OWN_MAX + 1);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    pair_fini(&p);
}

static void test_byte_by_byte(void **state)
{
    struct pair p;
    struct xfer in;
    uint8_t frame[LINK_HEADER_SIZE + 40], got[40] = {0};
    pair_init(&p, LINK_DATA);
    link_put_header(frame, 1, 4, sizeof(got));
    memset(frame + LINK_HEADER_SIZE, 'x', sizeof(got));
    xfer_start(&in, p.b.link, 4, got, sizeof(got));
    for (size_t i = 0; i < sizeof(frame); i++) {
        assert_int_equal(xfer_recv(&in), 1);
        assert_int_equal(write(p.a.link->watch.fd, frame + i, 1), 1);
        usleep(200);
    }
    for (int i = 0; i < 1000 && xfer_recv(&in) == 1; i++)
        usleep(100);
    assert_int_equal(xfer_recv(&in), 0);
    assert_memory_equal(got, frame + LINK_HEADER_SIZE, sizeof(got));
    pair_fini(&p);
}

/* ---- the end ---- */

static void drive_to_loss(struct side *s, int *ret_peer, struct err *err)
{
    uint64_t end = deadline_in_ms(3000);
    int rc;
    while ((rc = mesh_progress(&s->mesh, ret_peer, err)) == 0 && !deadline_passed(end))
        usleep(1000);
    assert_int_equal(rc, -ECONNRESET);
}

static void test_end_without_goodbye(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct pair p;
        struct xfer in;
        struct err err;
        uint8_t data[32];
        int peer = -9;
        pair_init(&p, (enum link_class)cls);
        shutdown(p.a.link->watch.fd, SHUT_RDWR);
        if (cls == LINK_DATA) {
            xfer_start(&in, p.b.link, 1, data, sizeof(data));
            assert_int_equal(xfer_recv(&in), 1); /* the verdict is not out yet */
        }
        drive_to_loss(&p.b, &peer, &err);
        assert_int_equal(peer, 0);
        assert_non_null(strstr(err.msg, "lost the connection to rank 0"));
        if (cls == LINK_DATA)
            assert_int_equal(xfer_recv(&in), -ECONNRESET);
        assert_int_equal(mesh_why(&p.b.mesh, &peer, &err), -ECONNRESET);
        pair_fini(&p);
    }
}

static void test_goodbye(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct pair p;
        struct xfer in;
        uint8_t data[32];
        pair_init(&p, (enum link_class)cls);
        assert_false(mesh_all_left(&p.b.mesh));
        mesh_goodbye(&p.a.mesh);
        shutdown(p.a.link->watch.fd, SHUT_RDWR);
        for (int i = 0; i < 300 && !mesh_all_left(&p.b.mesh); i++, usleep(1000))
            assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
        assert_true(mesh_all_left(&p.b.mesh));
        assert_int_equal(mesh_why(&p.b.mesh, NULL, NULL), 0);
        xfer_start(&in, p.b.link, 1, data, sizeof(data));
        assert_int_equal(xfer_recv(&in), -ECONNRESET);
        pair_fini(&p);
    }
}

/* What was sent before a goodbye is still delivered. */
static void test_data_before_goodbye(void **state)
{
    struct pair p;
    struct xfer out, in;
    uint8_t data[3000] = {5}, got[3000] = {0};
    pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, 1, data, sizeof(data));
    assert_int_equal(xfer_send(&out, sizeof(data)), 0);
    mesh_goodbye(&p.a.mesh);
    link_close(p.a.link);
    for (int i = 0; i < 300; i++, usleep(1000))
        assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
    xfer_start(&in, p.b.link, 1, got, sizeof(got));
    assert_int_equal(xfer_recv(&in), 0);
    assert_memory_equal(data, got, sizeof(got));
    for (int i = 0; i < 300 && !mesh_all_left(&p.b.mesh); i++, usleep(1000)) {
        xfer_start(&in, p.b.link, 2, got, sizeof(got));
        xfer_recv(&in);
        assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
    }
    assert_true(mesh_all_left(&p.b.mesh));
    pair_fini(&p);
}

static void test_abort_tells(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct pair p;
        struct err err;
        int peer = -9;
        pair_init(&p, (enum link_class)cls);
        mesh_abort(&p.a.mesh, "no more paper");
        drive_to_loss(&p.b, &peer, &err);
        assert_int_equal(peer, 0);
        assert_string_equal(err.msg, "rank 0 gave up: no more paper");
        pair_fini(&p);
    }
}

/* ---- control ---- */

static void test_messages(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 4096, 70000, LINK_MESSAGE_MAX};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    struct pair p;
    struct buf msg = {0};
    const int ample = 1 << 20;
    uint8_t *data = pattern(LINK_MESSAGE_MAX + 1, 9);
    pair_init(&p, LINK_CONTROL);
    setsockopt(p.a.link->watch.fd, SOL_SOCKET, SO_SNDBUF, &ample, sizeof(ample));
    setsockopt(p.b.link->watch.fd, SOL_SOCKET, SO_RCVBUF, &ample, sizeof(ample));
    assert_int_equal(link_post(p.a.link, data, LINK_MESSAGE_MAX + 1), -EMSGSIZE);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++)
            assert_int_equal(link_post(p.a.link, data, sizes[i]), 0);
        assert_int_equal(link_flush(p.a.link), 1);
        for (size_t i = 0; i < N; i++) {
            int rc;
            for (uint64_t end = deadline_in_ms(10000); (rc = link_take(p.b.link, &msg)) == 1;) {
                assert_false(deadline_passed(end));
                turn(&p);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(msg.len, sizes[i]);
            assert_memory_equal(msg.data, data, msg.len);
        }
        assert_int_equal(link_flush(p.a.link), 0);
        assert_int_equal(link_take(p.b.link, &msg), 1);
        next_generation(&p);
    }
    free(data);
    buf_fini(&msg);
    pair_fini(&p);
}

static void test_message_too_long(void **state)
{
    struct pair p;
    struct buf msg = {0};
    uint8_t header[LINK_HEADER_SIZE];
    int rc;
    pair_init(&p, LINK_CONTROL);
    link_put_header(header, 1, 0, LINK_MESSAGE_MAX + 1);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    for (int i = 0; i < 1000 && (rc = link_take(p.b.link, &msg)) == 1; i++, usleep(100))
        mesh_progress(&p.b.mesh, NULL, NULL);
    assert_int_equal(rc, -EPROTO);
    assert_int_equal(link_post(p.b.link, "x", 1), -EPROTO);
    buf_fini(&msg);
    pair_fini(&p);
}

static void test_posted_before_connected(void **state)
{
    struct pair p;
    struct buf msg = {0};
    int fds[2];
    side_init(&p.a, 0);
    side_init(&p.b, 1);
    tcp_pair(fds);
    p.a.link = link_get(&p.a.net, 1, LINK_CONTROL);
    p.b.link = link_get(&p.b.net, 0, LINK_CONTROL);
    assert_int_equal(link_post(p.a.link, "early", 5), 0);
    assert_int_equal(link_flush(p.a.link), 1);
    assert_int_equal(link_take(p.b.link, &msg), 1);
    struct xfer x;
    xfer_start(&x, p.a.link, 1, fds, 4);
    assert_int_equal(xfer_send(&x, 4), 1);
    assert_int_equal(xfer_recv(&x), 1);
    link_established(p.a.link, fds[0]);
    link_established(p.b.link, fds[1]);
    for (int i = 0; i < 1000 && link_take(p.b.link, &msg) == 1; i++, usleep(100))
        turn(&p);
    assert_int_equal(msg.len, 5);
    assert_memory_equal(msg.data, "early", 5);
    buf_fini(&msg);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_small_ones_in_a_row),
        cmocka_unit_test(test_ready_grows),
        cmocka_unit_test(test_cancel_in_the_middle),
        cmocka_unit_test(test_cancel_unseen),
        cmocka_unit_test(test_peer_is_ahead),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_wrong_tag),
        cmocka_unit_test(test_wrong_length),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_own_tags),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_end_without_goodbye),
        cmocka_unit_test(test_goodbye),
        cmocka_unit_test(test_data_before_goodbye),
        cmocka_unit_test(test_abort_tells),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_message_too_long),
        cmocka_unit_test(test_posted_before_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
