/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/frames, agent/tail and agent/config: texts are read back as they were written; cut
 * and foreign bytes are refused.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/config.h"
#include "agent/frames.h"
#include "agent/tail.h"
#include "core/base/cleanup.h"

static void test_frames(void **state)
{
    struct buf b = {0};
    struct frame f;
    (void)state;
    frame_put(&b, 7, FRAME_STDERR, "hello", 5);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(frame_get(b.data, n, &f), 0);
    frame_put(&b, 8, FRAME_STDOUT, "", 0);
    long n = frame_get(b.data, b.len, &f);
    assert_int_equal(n, FRAME_HEAD + 5);
    assert_int_equal(f.rank, 7);
    assert_int_equal(f.stream, FRAME_STDERR);
    assert_memory_equal(f.data, "hello", 5);
    assert_int_equal(frame_get(b.data + n, b.len - (size_t)n, &f), FRAME_HEAD);
    assert_int_equal(f.len, 0);
    assert_int_equal(frame_get((const uint8_t *)"Last login: today", 17, &f), -EPROTO);
    b.data[8] = 9; /* no such stream */
    assert_int_equal(frame_get(b.data, b.len, &f), -EPROTO);
    buf_fini(&b);
}

static void expect_tail(const struct tail *t, int lines, const char *want)
{
    char text[TAIL_SIZE + 1];
    tail_text(t, lines, text, sizeof(text));
    assert_string_equal(text, want);
}

static void test_tail(void **state)
{
    struct tail t = {0};
    char line[40], text[TAIL_SIZE + 1];
    (void)state;
    expect_tail(&t, 3, "");
    tail_put(&t, "one\ntwo\nthree\n\n", 15);
    expect_tail(&t, 2, "two\nthree");
    expect_tail(&t, 9, "one\ntwo\nthree");
    tail_put(&t, "four", 4);
    expect_tail(&t, 1, "four");
    for (int i = 0; i < 1000; i++)
        tail_put(&t, line, (size_t)snprintf(line, sizeof(line), "this is line %d\n", i));
    expect_tail(&t, 2, "this is line 998\nthis is line 999");
    tail_text(&t, 1000, text, sizeof(text));
    assert_memory_equal(text, "this is line ", 13); /* whole lines only */
    tail_text(&t, 1000, text, 30);
    assert_string_equal(text, "this is line 999");
    char *big = malloc(3 * TAIL_SIZE);
    memset(big, 'x', 3 * TAIL_SIZE);
    tail_put(&t, big, 3 * TAIL_SIZE);
    free(big);
    tail_text(&t, 5, text, sizeof(text));
    assert_int_equal(strlen(text), TAIL_SIZE);
}

static void test_config(void **state)
{
    char *argv[] = {"python3", "tr\xe4in.py", "", NULL}, *env[] = {"A=1\n2", "B=", NULL};
    struct agent_config in = {.agent = "a",
                              .host = "h",
                              .url = "https://x:1",
                              .token = "t",
                              .argv = argv,
                              .env = env,
                              .cwd = "/a \xff",
                              .cwd_may_lack = true,
                              .bind_to = BIND_NUMA,
                              .doctor = DOCTOR_OFF,
                              .start_timeout = 9,
                              .lost_seconds = 5},
                        out;
    auto_free char *text = config_write(&in);
    struct err err;
    (void)state;
    assert_non_null(text);
    assert_int_equal(config_read(text, strlen(text), &out, &err), 0);
    assert_null(out.unix_path);
    assert_null(out.ca_pem);
    assert_string_equal(out.argv[1], argv[1]);
    assert_string_equal(out.argv[2], "");
    assert_null(out.argv[3]);
    assert_string_equal(out.env[0], env[0]);
    assert_string_equal(out.cwd, in.cwd);
    assert_int_equal(out.bind_to, BIND_NUMA);
    assert_int_equal(out.doctor, DOCTOR_OFF);
    assert_true(out.cwd_may_lack);
    config_fini(&out);
    /* A configuration that is cut anywhere is refused, and nothing leaks. */
    for (size_t n = 0; n < strlen(text); n += 7)
        assert_int_equal(config_read(text, n, &out, &err), -EINVAL);
    in.argv = env + 2;
    auto_free char *no_command = config_write(&in);
    assert_int_equal(config_read(no_command, strlen(no_command), &out, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
