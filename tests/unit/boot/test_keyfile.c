/* SPDX-License-Identifier: Apache-2.0
 *
 * test_keyfile: raw and hex keys, white space, files that are too short, too long or missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/boot/keyfile.h"

/* Reads a key from a file with these bytes (a memfd, by its path in /proc). */
static int key_of(const void *bytes, size_t n, uint8_t key[MAC_KEY_SIZE], struct err *err)
{
    char path[64];
    int fd = memfd_create("key", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int rc = keyfile_read(path, key, err);
    close(fd);
    return rc;
}

static void test_raw_and_hex(void **state)
{
    (void)state;
    uint8_t raw[32], a[MAC_KEY_SIZE], b[MAC_KEY_SIZE], c[MAC_KEY_SIZE];
    char hex[80];
    for (int i = 0; i < 32; i++) {
        raw[i] = (uint8_t)(i * 7 + 1);
        snprintf(hex + 2 * i, 3, i % 2 ? "%02x" : "%02X", raw[i]);
    }
    assert_int_equal(key_of(raw, 32, a, NULL), 0);
    assert_int_equal(key_of(hex, 64, b, NULL), 0);
    assert_memory_equal(a, b, sizeof(a));
    memmove(hex + 1, hex, 64);
    hex[0] = ' ';
    memcpy(hex + 65, "\r\n", 2);
    assert_int_equal(key_of(hex, 67, b, NULL), 0);
    assert_memory_equal(a, b, sizeof(a));
    raw[31] ^= 1;
    assert_int_equal(key_of(raw, 32, c, NULL), 0);
    assert_memory_not_equal(a, c, sizeof(a));
}

static void test_bad_files(void **state)
{
    (void)state;
    struct err err = {0};
    uint8_t key[MAC_KEY_SIZE] = {0}, zero[MAC_KEY_SIZE] = {0};
    static char big[5000];
    assert_int_equal(key_of("", 0, key, &err), -EINVAL);
    assert_int_equal(key_of(big, 31, key, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "31 bytes"));
    assert_int_equal(key_of(big, sizeof(big), key, &err), -EFBIG);
    assert_int_equal(keyfile_read("/nonexistent", key, &err), -ENOENT);
    assert_int_equal(keyfile_read("/", key, &err), -EISDIR);
    assert_memory_equal(key, zero, sizeof(key));
    unsetenv("HVD_KEY_FILE");
    assert_int_equal(keyfile_from_env(key, &err), 1);
}

static void test_derive(void **state)
{
    (void)state;
    uint8_t key[MAC_KEY_SIZE] = {1}, one[MAC_KEY_SIZE], two[MAC_KEY_SIZE];
    const uint8_t first[MAC_NONCE_SIZE] = {1}, second[MAC_NONCE_SIZE] = {2};
    keyfile_derive(key, first, one);
    keyfile_derive(key, second, two);
    assert_memory_not_equal(one, two, sizeof(one));
    keyfile_derive(key, first, two);
    assert_memory_equal(one, two, sizeof(one));
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raw_and_hex),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_derive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
