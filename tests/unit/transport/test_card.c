/* SPDX-License-Identifier: Apache-2.0
 *
 * card: written and read back, cut and changed bytes, which ranks may share memory; which addresses
 * of a peer are tried, in which order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/transport/card.h"
#include "core/transport/dial.h"

static struct sock_addr addr(const char *text, uint16_t port)
{
    struct sock_addr a;
    assert_int_equal(sock_parse_ip(text, &a, NULL), 0);
    a.port = port;
    return a;
}

static struct card sample(void)
{
    struct card c;
    card_fill(&c, -1);
    c.flags = CARD_SHM | CARD_UNIX;
    c.naddrs = 2;
    c.addrs[0] = addr("10.1.2.3/24", 4000);
    c.addrs[1] = addr("fd00::5/64", 4001);
    return c;
}

static void test_round_trip(void **state)
{
    struct card c = sample(), d;
    struct buf b = {0};
    card_encode(&c, &b);
    assert_int_equal(card_decode(b.data, b.len, &d, NULL), 0);
    assert_memory_equal(c.uid, d.uid, sizeof(c.uid));
    assert_memory_equal(c.boot_id, d.boot_id, sizeof(c.boot_id));
    assert_true(c.netns != 0 && c.netns == d.netns && c.pidns == d.pidns);
    assert_int_equal(c.user, d.user);
    assert_int_equal(c.flags, d.flags);
    assert_int_equal(d.naddrs, 2);
    assert_memory_equal(c.addrs, d.addrs, 2 * sizeof(c.addrs[0]));
    c.naddrs = SOCK_MAX_ADDRS;
    for (size_t i = 0; i < c.naddrs; i++)
        c.addrs[i] = c.addrs[1];
    buf_reset(&b);
    card_encode(&c, &b);
    assert_int_equal(b.len, CARD_BYTES_MAX);
    buf_fini(&b);
}

static void test_foreign_bytes(void **state)
{
    struct card c = sample(), d;
    struct buf b = {0};
    struct err err;
    card_encode(&c, &b);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(card_decode(b.data, n, &d, &err), -EPROTO);
    buf_put_u8(&b, 0);
    assert_int_equal(card_decode(b.data, b.len, &d, &err), -EPROTO);
    b.len--;
    b.data[0] = 9;
    assert_int_equal(card_decode(b.data, b.len, &d, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "version 9"));
    b.data[0] = CARD_VERSION;
    size_t naddrs_at = b.len - 1 - (4 + 4) - (4 + 16);
    assert_int_equal(b.data[naddrs_at], 2);
    b.data[naddrs_at] = SOCK_MAX_ADDRS + 1;
    assert_int_equal(card_decode(b.data, b.len, &d, &err), -EPROTO);
    b.data[naddrs_at] = 2;
    b.data[naddrs_at + 1] = 5; /* an unknown IP version */
    assert_int_equal(card_decode(b.data, b.len, &d, &err), -EPROTO);
    b.data[naddrs_at + 1] = 4;
    b.data[naddrs_at + 2] = 33; /* an invalid network prefix */
    assert_int_equal(card_decode(b.data, b.len, &d, &err), -EPROTO);
    buf_fini(&b);
}

static void test_same_host(void **state)
{
    struct card a = sample(), b = a;
    b.uid[0] ^= 1;
    assert_true(card_same_host(&a, &b));
    b = a, b.netns++;
    assert_false(card_same_host(&a, &b));
    b = a, b.boot_id[3]++;
    assert_false(card_same_host(&a, &b));
    b = a, b.user++;
    assert_false(card_same_host(&a, &b));
    b = a, b.split++;
    assert_false(card_same_host(&a, &b));
    b = a, b.flags = CARD_UNIX;
    assert_false(card_same_host(&a, &b));
    b = a, b.agent = 4;
    assert_false(card_same_host(&a, &b));
    a.agent = 4;
    assert_true(card_same_host(&a, &b));
    b.netns++; /* the agent's socket also works across network namespaces */
    assert_true(card_same_host(&a, &b));
    b.pidns++;
    assert_false(card_same_host(&a, &b));
    a = sample();
    memset(a.boot_id, 0, sizeof(a.boot_id));
    b = a;
    assert_false(card_same_host(&a, &b));
}

static void test_order(void **state)
{
    struct card mine = sample(), peer = sample();
    struct sock_addr own[] = {addr("127.0.0.1/8", 0), addr("172.17.0.1/16", 0),
                              addr("10.1.0.9/16", 0)};
    struct sock_addr got[SOCK_MAX_ADDRS];
    peer.naddrs = 4;
    peer.addrs[0] = addr("192.168.7.7/24", 5000);
    peer.addrs[1] = addr("172.17.0.1/16", 5001); /* a bridge with the same address on both hosts */
    peer.addrs[2] = addr("10.1.44.44/16", 5002);
    peer.addrs[3] = addr("127.0.0.1/8", 5003);
    peer.netns++;
    assert_int_equal(dial_order(&mine, &peer, own, 3, got), 2);
    assert_int_equal(got[0].port, 5002); /* an address in a common network comes first */
    assert_int_equal(got[1].port, 5000);
    peer.netns = mine.netns;
    assert_int_equal(dial_order(&mine, &peer, own, 3, got), 4);
    assert_int_equal(got[3].port, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_same_host),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
