/* SPDX-License-Identifier: Apache-2.0
 *
 * test_wire: frames of the rendezvous: cut anywhere, too long, of the wrong type, with wrong
 * proofs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/boot/boot.h"
#include "core/boot/wire.h"

#define ANY (~0u)

static const uint8_t key[MAC_KEY_SIZE] = {9}, other[MAC_KEY_SIZE] = {8};

static void test_hello(void **state)
{
    (void)state;
    struct buf out = {0};
    struct wire_session session = {.key = key};
    struct wire_frame frame;
    const uint8_t nonce[MAC_NONCE_SIZE] = {7};
    uint32_t rank, size;
    wire_put_hello(&out, &session, 3, 8, nonce);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(wire_parse(out.data, n, ANY, 8, &frame), 1);
    assert_int_equal(wire_parse(out.data, out.len, ANY, 8, &frame), 0);
    assert_int_equal(frame.used, out.len);
    assert_int_equal(wire_get_hello(&frame, &rank, &size), 0);
    assert_int_equal(rank, 3);
    assert_int_equal(size, 8);
    assert_memory_equal(session.hello, frame.body, WIRE_HELLO_SIZE);
    frame.len--;
    assert_int_equal(wire_get_hello(&frame, &rank, &size), -EPROTO);
    assert_int_equal(wire_parse(out.data, out.len, 1u << WIRE_CARD, 8, &frame), -EPROTO);
    out.data[0] = 'X';
    assert_int_equal(wire_parse(out.data, 1, ANY, 8, &frame), -EPROTO);
    buf_fini(&out);
}

static void test_too_long(void **state)
{
    (void)state;
    struct wire_frame frame;
    for (int type = 0; type <= WIRE_TYPES; type++) {
        struct buf out = {0};
        size_t max = wire_body_max((enum wire_type)type, 4);
        bool known = type > 0 && type < WIRE_TYPES;
        wire_put_header(&out, (enum wire_type)type, max);
        assert_int_equal(wire_parse(out.data, out.len, ANY, 4, &frame), known ? 1 : -EPROTO);
        buf_reset(&out);
        wire_put_header(&out, (enum wire_type)type, max + 1);
        assert_int_equal(wire_parse(out.data, out.len, ANY, 4, &frame), -EPROTO);
        buf_fini(&out);
    }
}

static void test_proof(void **state)
{
    (void)state;
    struct buf out = {0};
    struct wire_session session = {.key = key, .hello = {1}, .nonce = {2}};
    struct wire_frame frame;
    size_t len = 0;
    wire_put_proven(&out, &session, WIRE_CARD, "card", 4);
    assert_int_equal(wire_parse(out.data, out.len, ANY, 4, &frame), 0);
    assert_int_equal(wire_check(&session, &frame, &len), 0);
    assert_int_equal(len, 4);

    struct wire_session changed = session;
    changed.key = other;
    assert_int_equal(wire_check(&changed, &frame, &len), -EACCES);
    changed = session;
    changed.nonce[31] = 1;
    assert_int_equal(wire_check(&changed, &frame, &len), -EACCES);
    changed = session;
    changed.hello[4] = 1;
    assert_int_equal(wire_check(&changed, &frame, &len), -EACCES);
    frame.type = WIRE_REFUSE;
    assert_int_equal(wire_check(&session, &frame, &len), -EACCES);
    frame.type = WIRE_HELLO;
    assert_int_equal(wire_check(&session, &frame, &len), -EACCES);
    frame.type = WIRE_CARD;
    for (size_t i = WIRE_HEADER_SIZE; i < out.len; i++) {
        out.data[i] ^= 0x10;
        assert_int_equal(wire_check(&session, &frame, &len), -EACCES);
        out.data[i] ^= 0x10;
    }
    frame.len = MAC_SIZE - 1;
    assert_int_equal(wire_check(&session, &frame, &len), -EACCES);
    buf_fini(&out);
}

static void test_roster(void **state)
{
    (void)state;
    struct buf cards[3] = {{0}}, back[3] = {{0}}, body = {0};
    const uint8_t session[MAC_NONCE_SIZE] = {5};
    uint8_t session_back[MAC_NONCE_SIZE];
    buf_put(&cards[1], "one", 3);
    for (int i = 0; i < BOOT_CARD_MAX; i++)
        buf_put_u8(&cards[2], (uint8_t)i);
    wire_put_roster(&body, cards, 3, session);
    assert_true(body.len + MAC_SIZE <= wire_body_max(WIRE_ROSTER, 3));
    for (size_t n = 0; n < body.len; n++)
        assert_int_equal(wire_get_roster(body.data, n, 3, back, session_back), -EPROTO);
    assert_int_equal(wire_get_roster(body.data, body.len, 2, back, session_back), -EPROTO);
    assert_int_equal(wire_get_roster(body.data, body.len, 3, back, session_back), 0);
    assert_memory_equal(session, session_back, sizeof(session));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(back[r].len, cards[r].len);
        if (back[r].len)
            assert_memory_equal(back[r].data, cards[r].data, cards[r].len);
        buf_fini(&back[r]);
        buf_fini(&cards[r]);
    }
    buf_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_proof),
        cmocka_unit_test(test_roster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
