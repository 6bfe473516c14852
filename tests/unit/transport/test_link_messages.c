/* SPDX-License-Identifier: Apache-2.0
 *
 * link: control messages between two ends in one process: of all sizes, across generations, too
 * long, posted before the link is connected.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/link_pair.h"

static void turn(struct link_pair *p)
{
    assert_int_equal(link_pair_turn(p), 0);
}

static void test_messages(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 4096, 70000, LINK_MESSAGE_MAX};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    struct link_pair p;
    struct buf msg = {0};
    const int ample = 1 << 20;
    uint8_t *data = link_pair_bytes(LINK_MESSAGE_MAX + 1, 9);
    link_pair_init(&p, LINK_CONTROL);
    setsockopt(p.a.link->watch.fd, SOL_SOCKET, SO_SNDBUF, &ample, sizeof(ample));
    setsockopt(p.b.link->watch.fd, SOL_SOCKET, SO_RCVBUF, &ample, sizeof(ample));
    assert_int_equal(link_post(p.a.link, data, LINK_MESSAGE_MAX + 1), -EMSGSIZE);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++)
            assert_int_equal(link_post(p.a.link, data, sizes[i]), 0);
        assert_int_equal(link_flush(p.a.link), 1);
        for (size_t i = 0; i < N; i++) {
            int rc;
            for (uint64_t end = deadline_in_ms(30000); (rc = link_take(p.b.link, &msg)) == 1;) {
                assert_false(deadline_passed(end));
                turn(&p);
            }
            assert_int_equal(rc, 0);
            assert_int_equal(msg.len, sizes[i]);
            assert_memory_equal(msg.data, data, msg.len);
        }
        assert_int_equal(link_flush(p.a.link), 0);
        assert_int_equal(link_take(p.b.link, &msg), 1);
        link_pair_next_generation(&p);
    }
    free(data);
    buf_fini(&msg);
    link_pair_fini(&p);
}

static void test_message_too_long(void **state)
{
    struct link_pair p;
    struct buf msg = {0};
    uint8_t header[LINK_HEADER_SIZE];
    int rc;
    link_pair_init(&p, LINK_CONTROL);
    link_put_header(header, 1, 0, LINK_MESSAGE_MAX + 1);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    for (int i = 0; i < 100000 && (rc = link_take(p.b.link, &msg)) == 1; i++, usleep(100))
        mesh_progress(&p.b.mesh, NULL, NULL);
    assert_int_equal(rc, -EPROTO);
    assert_int_equal(link_post(p.b.link, "x", 1), -EPROTO);
    buf_fini(&msg);
    link_pair_fini(&p);
}

static void test_posted_before_connected(void **state)
{
    struct link_pair p;
    struct buf msg = {0};
    int fds[2];
    link_pair_init_apart(&p, LINK_CONTROL, fds);
    assert_int_equal(link_post(p.a.link, "early", 5), 0);
    assert_int_equal(link_flush(p.a.link), 1);
    assert_int_equal(link_take(p.b.link, &msg), 1);
    struct xfer x;
    xfer_start(&x, p.a.link, 1, fds, 4);
    assert_int_equal(xfer_send(&x, 4), 1);
    assert_int_equal(xfer_recv(&x), 1);
    link_established(p.a.link, fds[0]);
    link_established(p.b.link, fds[1]);
    for (int i = 0; i < 100000 && link_take(p.b.link, &msg) == 1; i++, usleep(100))
        turn(&p);
    assert_int_equal(msg.len, 5);
    assert_memory_equal(msg.data, "early", 5);
    buf_fini(&msg);
    link_pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_message_too_long),
        cmocka_unit_test(test_posted_before_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
