/* SPDX-License-Identifier: Apache-2.0
 *
 * link: transfers between two ends in one process (tests/harness/link_pair): in pieces, cancelled,
 * stale; and invalid frames. See also test_link_end and test_link_messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/link_pair.h"

static void turn(struct link_pair *p)
{
    assert_int_equal(link_pair_turn(p), 0);
}

/* Drives one message from a to b until it is complete. */
static void move(struct link_pair *p, uint64_t tag, const uint8_t *data, uint8_t *got, size_t len)
{
    struct xfer out, in;
    int sent = 1, come = 1;
    xfer_start(&out, p->a.link, tag, (void *)data, len);
    xfer_start(&in, p->b.link, tag, got, len);
    for (uint64_t end = deadline_in_ms(30000); sent || come;) {
        assert_false(deadline_passed(end));
        sent = xfer_send(&out, len);
        come = xfer_recv(&in);
        assert_true(sent >= 0 && come >= 0);
        turn(p);
    }
    assert_memory_equal(data, got, len);
}

static void move_one(struct link_pair *p, uint64_t tag, size_t len)
{
    uint8_t *data = link_pair_bytes(len, (unsigned)tag), *got = calloc(1, len + 1);
    move(p, tag, data, got, len);
    free(data);
    free(got);
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 23, 24, 25, 4071, 4072, 4073, 4096, 65536, 1000003};
    struct link_pair p;
    link_pair_init(&p, LINK_DATA);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        move_one(&p, i, sizes[i]);
    link_pair_fini(&p);
}

static void test_small_ones_in_a_row(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    link_pair_init(&p, LINK_DATA);
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
    link_pair_fini(&p);
}

static void test_ready_grows(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    enum { N = 50000 };
    uint8_t *data = link_pair_bytes(N, 3), *got = calloc(1, N);
    link_pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, 1, data, N);
    xfer_start(&in, p.b.link, 1, got, N);
    assert_int_equal(xfer_send(&out, 0), 1);
    assert_int_equal(out.header_done, 0);
    for (size_t ready = 0; ready <= N; ready += 500) {
        uint64_t end = deadline_in_ms(30000);
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
    link_pair_fini(&p);
}

/* ---- cancelled ---- */

static void test_cancel_in_the_middle(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    enum { N = 3000000 };
    uint8_t *data = link_pair_bytes(N, 3), *got = calloc(1, N);
    link_pair_init(&p, LINK_DATA);
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
    link_pair_next_generation(&p);
    move_one(&p, 1, 5000);
    move_one(&p, 2, 5);
    link_pair_fini(&p);
}

static void test_cancel_unseen(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    uint8_t data[100] = {1}, got[100];
    link_pair_init(&p, LINK_DATA);
    /* no byte was sent yet: as if the transfer had never been started */
    xfer_start(&out, p.a.link, 1, data, sizeof(data));
    xfer_cancel_send(&out);
    xfer_start(&in, p.b.link, 1, got, sizeof(got));
    assert_int_equal(xfer_recv(&in), 1);
    xfer_cancel_recv(&in);
    move_one(&p, 7, 10);
    /* sent completely and never received: stale later */
    for (int i = 0; i < 3; i++) {
        xfer_start(&out, p.a.link, 1, data, sizeof(data));
        assert_int_equal(xfer_send(&out, sizeof(data)), 0);
    }
    xfer_cancel_send(&out);
    link_pair_next_generation(&p);
    move_one(&p, 8, 1000);
    link_pair_fini(&p);
}

static void test_peer_is_ahead(void **state)
{
    struct link_pair p;
    struct xfer out, in;
    uint8_t data[100] = {1}, got[100] = {0};
    link_pair_init(&p, LINK_DATA);
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
    link_pair_fini(&p);
}

/* Messages of random sizes in both directions, some cancelled at random places. */
static void test_random(void **state)
{
    struct link_pair p;
    unsigned seed = 12345;
    link_pair_init(&p, LINK_DATA);
    for (uint64_t round = 0; round < 300; round++) {
        size_t len = (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 5000 : 200000);
        uint8_t *data = link_pair_bytes(len, (unsigned)round), *got = calloc(1, len + 1);
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
            link_pair_next_generation(&p);
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
    link_pair_fini(&p);
}

/* ---- invalid frames ---- */

static void expect_nonsense(struct link_pair *p, struct xfer *in)
{
    int rc;
    for (int i = 0; i < 100000 && (rc = xfer_recv(in)) == 1; i++)
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
    struct link_pair p;
    struct xfer out, in;
    uint8_t data[64] = {0};
    link_pair_init(&p, LINK_DATA);
    xfer_start(&out, p.a.link, tag, data, len);
    assert_int_equal(xfer_send(&out, len), 0);
    xfer_start(&in, p.b.link, 1, data, 32);
    expect_nonsense(&p, &in);
    link_pair_fini(&p);
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
    struct link_pair p;
    struct xfer in;
    uint8_t data[32];
    link_pair_init(&p, LINK_DATA);
    assert_int_equal(write(p.a.link->watch.fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 28), 28);
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    link_pair_fini(&p);
}

static void test_own_tags(void **state)
{
    struct link_pair p;
    struct xfer in;
    uint8_t header[LINK_HEADER_SIZE], data[32];
    link_pair_init(&p, LINK_DATA);
    link_put_header(header, 1, LINK_TAG_OWN + 77, 0);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    link_pair_fini(&p);
    link_pair_init(&p, LINK_DATA);
    link_put_header(header, 1, LINK_TAG_LOST, LINK_OWN_MAX + 1);
    assert_int_equal(write(p.a.link->watch.fd, header, sizeof(header)), sizeof(header));
    xfer_start(&in, p.b.link, 1, data, sizeof(data));
    expect_nonsense(&p, &in);
    link_pair_fini(&p);
}

static void test_byte_by_byte(void **state)
{
    struct link_pair p;
    struct xfer in;
    uint8_t frame[LINK_HEADER_SIZE + 40], got[40] = {0};
    link_pair_init(&p, LINK_DATA);
    link_put_header(frame, 1, 4, sizeof(got));
    memset(frame + LINK_HEADER_SIZE, 'x', sizeof(got));
    xfer_start(&in, p.b.link, 4, got, sizeof(got));
    for (size_t i = 0; i < sizeof(frame); i++) {
        assert_int_equal(xfer_recv(&in), 1);
        assert_int_equal(write(p.a.link->watch.fd, frame + i, 1), 1);
        usleep(200);
    }
    for (int i = 0; i < 100000 && xfer_recv(&in) == 1; i++)
        usleep(100);
    assert_int_equal(xfer_recv(&in), 0);
    assert_memory_equal(got, frame + LINK_HEADER_SIZE, sizeof(got));
    link_pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_small_ones_in_a_row),
        cmocka_unit_test(test_ready_grows),   cmocka_unit_test(test_cancel_in_the_middle),
        cmocka_unit_test(test_cancel_unseen), cmocka_unit_test(test_peer_is_ahead),
        cmocka_unit_test(test_random),        cmocka_unit_test(test_wrong_tag),
        cmocka_unit_test(test_wrong_length),  cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_own_tags),      cmocka_unit_test(test_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
