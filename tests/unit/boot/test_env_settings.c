/* SPDX-License-Identifier: Apache-2.0
 *
 * test_env_settings: boot's errors for invalid settings: ranks, sizes, addresses and key files. No
 * other ranks are started; test_env runs valid settings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/boot/boot.h"

static void expect_open(int want, const char *text)
{
    struct boot boot;
    struct err err = {0};
    int rc = boot_open(&boot, &err);
    boot_fini(&boot);
    assert_int_equal(rc, want);
    if (text && !strstr(err.msg, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.msg);
}

static void clear(void)
{
    unsetenv("HVD_RANK");
    unsetenv("HVD_SIZE");
    unsetenv("HVD_RENDEZVOUS");
    unsetenv("HVD_KEY_FILE");
}

static void test_bad_settings(void **state)
{
    (void)state;
    clear();
    setenv("HVD_RANK", "0", 1);
    expect_open(-EINVAL, "HVD_SIZE is not");
    setenv("HVD_SIZE", "2", 1);
    expect_open(-EINVAL, "HVD_RENDEZVOUS is not set");
    setenv("HVD_RENDEZVOUS", "127.0.0.1:1", 1);
    setenv("HVD_RANK", "2", 1);
    expect_open(-EINVAL, "HVD_RANK=2");
    setenv("HVD_RANK", "x", 1);
    expect_open(-EINVAL, "HVD_RANK=x");
    setenv("HVD_SIZE", "0", 1);
    expect_open(-EINVAL, "HVD_SIZE=0");
    clear();
}

static void expect_exchange(int want, const char *text)
{
    struct boot boot;
    struct err err = {0};
    const struct buf card = {0};
    int rc = boot_open(&boot, &err);
    if (rc == 0)
        rc = boot_exchange(&boot, &card, deadline_in_ms(300), &err);
    boot_fini(&boot);
    assert_int_equal(rc, want);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.msg);
}

static void test_bad_rendezvous(void **state)
{
    (void)state;
    static const char *const bad[] = {"localhost", ":1",   "h:",     "h:0",
                                      "h:65536",   "h:1x", "::1:80", "[]:1"};
    clear();
    setenv("HVD_RANK", "1", 1);
    setenv("HVD_SIZE", "2", 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("HVD_RENDEZVOUS", bad[i], 1);
        expect_exchange(-EINVAL, "want host:port");
    }
    setenv("HVD_RENDEZVOUS", "192.0.2.1:29400", 1);
    expect_exchange(-EPERM, "HVD_KEY_FILE");
    setenv("HVD_RENDEZVOUS", "localhost:29400", 1);
    setenv("HVD_KEY_FILE", "/nonexistent/key", 1);
    expect_exchange(-ENOENT, "/nonexistent/key");
    clear();
}

static void test_short_key_file(void **state)
{
    (void)state;
    char path[] = "/tmp/hvd-test-key-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "too short", 9), 9);
    close(fd);
    clear();
    setenv("HVD_RANK", "0", 1);
    setenv("HVD_SIZE", "2", 1);
    setenv("HVD_RENDEZVOUS", "127.0.0.1:29400", 1);
    setenv("HVD_KEY_FILE", path, 1);
    expect_exchange(-EINVAL, "at least 32");
    clear();
    unlink(path);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_bad_rendezvous),
        cmocka_unit_test(test_short_key_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
