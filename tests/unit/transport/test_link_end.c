/* SPDX-License-Identifier: Apache-2.0
 *
 * link: the end of a connection between two ends in one process: without a farewell, with one, with
 * data before it, and with the reason that an aborting rank sends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/link_pair.h"

static void drive_to_loss(struct link_side *s, int *ret_peer, struct err *err)
{
    uint64_t end = deadline_in_ms(30000);
    int rc;
    while ((rc = mesh_progress(&s->mesh, ret_peer, err)) == 0 && !deadline_passed(end))
        usleep(1000);
    assert_int_equal(rc, -ECONNRESET);
}

static void test_end_without_goodbye(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct link_pair p;
        struct xfer in;
        struct err err;
        uint8_t data[32];
        int peer = -9;
        link_pair_init(&p, (enum link_class)cls);
        shutdown(p.a.link->watch.fd, SHUT_RDWR);
        if (cls == LINK_DATA) {
            xfer_start(&in, p.b.link, 1, data, sizeof(data));
            assert_int_equal(xfer_recv(&in), 1); /* no result yet */
        }
        drive_to_loss(&p.b, &peer, &err);
        assert_int_equal(peer, 0);
        assert_non_null(strstr(err.msg, "lost the connection to rank 0"));
        if (cls == LINK_DATA)
            assert_int_equal(xfer_recv(&in), -ECONNRESET);
        assert_int_equal(mesh_why(&p.b.mesh, &peer, &err), -ECONNRESET);
        link_pair_fini(&p);
    }
}

static void test_goodbye(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct link_pair p;
        struct xfer in;
        uint8_t data[32];
        link_pair_init(&p, (enum link_class)cls);
        assert_false(mesh_all_left(&p.b.mesh));
        mesh_goodbye(&p.a.mesh);
        shutdown(p.a.link->watch.fd, SHUT_RDWR);
        for (int i = 0; i < 20000 && !mesh_all_left(&p.b.mesh); i++, usleep(1000))
            assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
        assert_true(mesh_all_left(&p.b.mesh));
        assert_int_equal(mesh_why(&p.b.mesh, NULL, NULL), 0);
        xfer_start(&in, p.b.link, 1, data, sizeof(data));
        assert_int_equal(xfer_recv(&in), -ECONNRESET);
        link_pair_fini(&p);
    }
}

/* Data that was sent before a farewell is still delivered. */
static void test_data_before_goodbye(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    uint8_t data[3000] = {5}, got[3000] = {0};
    link_pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, 1, data, sizeof(data));
    assert_int_equal(xfer_send(&out, sizeof(data)), 0);
    mesh_goodbye(&p.a.mesh);
    link_close(p.a.link);
    for (int i = 0; i < 300; i++, usleep(1000))
        assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
    xfer_start(&in, p.b.link, 1, got, sizeof(got));
    assert_int_equal(xfer_recv(&in), 0);
    assert_memory_equal(data, got, sizeof(got));
    for (int i = 0; i < 20000 && !mesh_all_left(&p.b.mesh); i++, usleep(1000)) {
        xfer_start(&in, p.b.link, 2, got, sizeof(got));
        xfer_recv(&in);
        assert_int_equal(mesh_progress(&p.b.mesh, NULL, NULL), 0);
    }
    assert_true(mesh_all_left(&p.b.mesh));
    link_pair_fini(&p);
}

static void test_abort_tells(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct link_pair p;
        struct err err;
        int peer = -9;
        link_pair_init(&p, (enum link_class)cls);
        mesh_abort(&p.a.mesh, "no more paper");
        drive_to_loss(&p.b, &peer, &err);
        assert_int_equal(peer, 0);
        assert_string_equal(err.msg, "rank 0 gave up: no more paper");
        link_pair_fini(&p);
    }
}

static int write_some(struct link *link, uint64_t tag)
{
    static uint8_t data[100];
    struct xfer out;
    if (link->cls == LINK_CONTROL)
        return link_post(link, data, sizeof(data));
    xfer_start(&out, link, tag, data, sizeof(data));
    return xfer_send(&out, sizeof(data));
}

/* Unread data makes close(2) reset the connection. A write that meets the reset must not lose
 * the reason, which arrived before. */
static void test_abort_tells_a_writer(void **state)
{
    for (int cls = 0; cls < LINK_CLASSES; cls++) {
        struct link_pair p;
        struct err err;
        int peer = -9;
        link_pair_init(&p, (enum link_class)cls);
        assert_int_equal(write_some(p.b.link, 1), 0);
        mesh_abort(&p.a.mesh, "no more paper");
        for (int i = 0; i < 2000 && !p.b.link->gone; i++, usleep(1000))
            write_some(p.b.link, 2);
        assert_true(p.b.link->gone);
        drive_to_loss(&p.b, &peer, &err);
        assert_int_equal(peer, 0);
        assert_string_equal(err.msg, "rank 0 gave up: no more paper");
        link_pair_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_without_goodbye),  cmocka_unit_test(test_goodbye),
        cmocka_unit_test(test_data_before_goodbye),  cmocka_unit_test(test_abort_tells),
        cmocka_unit_test(test_abort_tells_a_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
