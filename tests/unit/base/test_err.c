/* SPDX-License-Identifier: Apache-2.0
 *
 * err, log: texts, prefixes, long texts that are cut, calls without an err, levels, and one
 * write(2) per line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"

static void test_set(void **state)
{
    struct err err = {0};
    assert_string_equal(err_text(&err), "no error");
    assert_string_equal(err_text(NULL), "no error");
    assert_int_equal(err_set(&err, EINVAL, "slots must be > 0, got %d", -3), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err_text(&err), "slots must be > 0, got -3");
    assert_int_equal(err_set(NULL, EIO, "x"), -EIO);
    assert_int_equal(err_sys(NULL, EIO, "x"), -EIO);
    assert_int_equal(err_sys(&err, ENOENT, "cannot open %s", "f"), -ENOENT);
    assert_string_equal(err.msg, "cannot open f: No such file or directory");
    assert_int_equal(err_prefix(&err, "job %d", 4), -ENOENT);
    assert_string_equal(err.msg, "job 4: cannot open f: No such file or directory");
    /* the err's own message may be an argument */
    err_set(&err, EIO, "again: %s", err.msg);
    assert_string_equal(err.msg, "again: job 4: cannot open f: No such file or directory");
}

static void test_long(void **state)
{
    struct err err;
    char text[3000];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    err_set(&err, EIO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    err_sys(&err, EIO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    err_set(&err, EIO, "%s", "end");
    err_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

/* Found by fuzz_doctor: a status of "a\nb" in a report made a message of two lines. */
static void test_one_line(void **state)
{
    struct err err;
    err_set(&err, EIO, "status: \"%s\"", "a\nb\033[2J\x7f");
    assert_string_equal(err.msg, "status: \"a b [2J \"");
    err_set(&err, EIO, "%s",
            "\xc2\x9b"
            "2J \xc2\xa0\xc3\xa4");
    assert_string_equal(err.msg, "??2J \xc2\xa0\xc3\xa4");
    err_set(&err, EIO, "x");
    err_prefix(&err, "%s", "a\tb\r");
    assert_string_equal(err.msg, "a b : x");
    err_sys(&err, ENOENT, "%s", "a\nb");
    assert_string_equal(err.msg, "a b: No such file or directory");
}

/* Puts what fn writes to standard error into text. Returns its length. */
static size_t capture(void (*fn)(void), char *text, size_t size)
{
    int pipes[2], old = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    fn();
    dup2(old, STDERR_FILENO);
    close(old);
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, size - 1);
    close(pipes[0]);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void say(void)
{
    log_error("a %d", 1);
    log_info("not this");
    log_debug("nor this");
}

static void say_much(void)
{
    log_error("%5000d", 1);
}

static void test_log(void **state)
{
    char text[8192];
    enum log_level level = LOG_TRACE;
    log_set_level(LOG_WARN);
    log_set_tag("hvd[3]");
    capture(say, text, sizeof(text));
    assert_string_equal(text, "hvd[3]: error: a 1\n");
    size_t n = capture(say_much, text, sizeof(text));
    assert_true(n > 1000 && n <= 2048 && text[n - 1] == '\n');
    assert_int_equal(log_level_parse("Warning", &level), 0);
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(log_level_parse("loud", &level), -EINVAL);
    assert_int_equal(level, LOG_WARN);
    log_set_tag("hvd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
