/* SPDX-License-Identifier: Apache-2.0
 *
 * test_machine: files under a root, live and captured; answers as text.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "diagnostics/machine.h"
#include "core/base/nearest.h"

static char dir[] = "/tmp/hvd-machine-XXXXXX";

static void put(const char *path, const char *text, size_t len)
{
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", dir, path);
    for (char *s = full + strlen(dir) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        mkdir(full, 0700);
        *s = '/';
    }
    unlink(full); /* never through a link */
    FILE *f = fopen(full, "wx");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    return mkdtemp(dir) ? 0 : 1;
}

static int teardown(void **state)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

#define PUT(path, text) put(path, text, sizeof(text) - 1)

static void test_files(void **state)
{
    struct machine m;
    struct err err = {0};
    char line[64], *text;
    int64_t n;
    size_t len;
    PUT("root/proc/meminfo",
        "MemTotal:       24000000 kB\nMemFree: 1 kB\nHugePages_Total:       0\n");
    PUT("root/sys/limit", "max\n");
    PUT("root/sys/number", "  42 \n7\n");
    PUT("root/sys/negative", "-7");
    PUT("root/sys/huge", "99999999999999999999999\n");
    PUT("root/sys/words", "not a number\n");
    PUT("root/sys/empty", "");
    PUT("root/proc/self/environ", "A=1\0HOME=/home/x\0EMPTY=\0LAST=z");
    PUT("answers/shm", "state ok 0\ntotal 65536\nfs tmpfs\n");
    PUT("answers/gpu", "state timeout 10000\nname half");
    assert_int_equal(machine_open_captured(&m, dir, &err), 0);
    assert_false(m.live);
    assert_int_equal(machine_field(&m, "proc/meminfo", "MemTotal", line, sizeof(line)), 0);
    assert_string_equal(line, "24000000 kB");
    assert_int_equal(machine_field_int(&m, "proc/meminfo", "MemFree", &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(machine_field(&m, "proc/meminfo", "Mem", line, sizeof(line)), -ENOENT);
    assert_int_equal(machine_int(&m, &n, "sys/%s", "limit"), 0);
    assert_true(n == INT64_MAX);
    assert_int_equal(machine_int(&m, &n, "sys/number"), 0);
    assert_int_equal(n, 42);
    assert_int_equal(machine_int(&m, &n, "sys/negative"), 0);
    assert_int_equal(n, -7);
    assert_int_equal(machine_int(&m, &n, "sys/huge"), 0);
    assert_true(n == INT64_MAX);
    assert_int_equal(machine_int(&m, &n, "sys/words"), -EINVAL);
    assert_int_equal(machine_int(&m, &n, "sys/empty"), -EINVAL);
    assert_int_equal(machine_int(&m, &n, "sys/absent"), -ENOENT);
    assert_int_equal(machine_read(&m, "sys", &text, &len), -EISDIR);
    assert_true(machine_exists(&m, "sys/%s", "words"));
    assert_false(machine_exists(&m, "sys/nothing"));
    assert_string_equal(machine_env(&m, "HOME"), "/home/x");
    assert_string_equal(machine_env(&m, "EMPTY"), "");
    assert_string_equal(machine_env(&m, "LAST"), "z");
    assert_null(machine_env(&m, "HOM"));
    assert_string_equal(machine_env_at(&m, 1), "HOME=/home/x");
    assert_null(machine_env_at(&m, 4));
    assert_int_equal(answer_int(machine_answer(&m, "shm"), "total", 0), 65536);
    assert_int_equal(machine_answer(&m, "gpu")->state, ANSWER_TIMEOUT);
    assert_string_equal(answer_str(machine_answer(&m, "gpu"), "name", ""), "half");
    machine_close(&m);
}

static void test_list(void **state)
{
    struct machine m;
    struct err err = {0};
    char **names, target[64];
    size_t n;
    PUT("root/sys/class/net/lo/mtu", "65536\n");
    PUT("root/sys/class/net/eth0/mtu", "1500\n");
    assert_int_equal(machine_open_captured(&m, dir, &err), 0);
    assert_int_equal(machine_list(&m, "sys/class/net", &names, &n), 0);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "eth0");
    assert_string_equal(names[1], "lo");
    assert_null(names[2]);
    free(names);
    assert_int_equal(machine_list(&m, "sys/class/none", &names, &n), -ENOENT);
    assert_int_equal(symlinkat("../lo", m.root, "sys/class/net/eth0/device"), 0);
    assert_int_equal(machine_readlink(&m, "sys/class/net/eth0/device", target, sizeof(target)), 0);
    assert_string_equal(target, "../lo");
    assert_int_equal(machine_readlink(&m, "sys/class/net/none", target, sizeof(target)), -ENOENT);
    assert_string_equal(target, "");
    machine_close(&m);
}

/* A FIFO in place of a file does not block the caller. A long file is cut. */
static void test_odd_files(void **state)
{
    struct machine m;
    struct err err = {0};
    char path[128], *text;
    size_t len;
    PUT("root/etc/x", "1");
    snprintf(path, sizeof(path), "%s/root/etc/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/root/etc/large", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 3 * MACHINE_FILE_MAX), 0);
    close(fd);
    assert_int_equal(machine_open_captured(&m, dir, &err), 0);
    if (machine_read(&m, "etc/fifo", &text, &len) == 0) {
        assert_int_equal(len, 0);
        free(text);
    }
    assert_int_equal(machine_read(&m, "etc/large", &text, &len), 0);
    assert_int_equal(len, MACHINE_FILE_MAX);
    free(text);
    machine_close(&m);
    assert_int_equal(machine_open_captured(&m, "/nonexistent", &err), -ENOENT);
}

static void test_live(void **state)
{
    struct machine m;
    struct err err = {0};
    int64_t n;
    setenv("HVD_TEST_MACHINE", "here", 1);
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_string_equal(machine_env(&m, "HVD_TEST_MACHINE"), "here");
    assert_int_equal(machine_field_int(&m, "proc/meminfo", "MemTotal", &n), 0);
    assert_true(n > 0);
    machine_close(&m);
    unsetenv("HVD_TEST_MACHINE");
}

/* Invalid lines are dropped and valid ones kept. An answer that is written and read again is the
 * same. */
static void test_answer_text(void **state)
{
    static const char text[] =
        "noblank\n leading\nkey value with blanks\n\nempty \nback\\\\slash a\\\\b\\nc\nlast x";
    struct answer a, b;
    struct buf out = {0};
    answer_parse(&a, text, sizeof(text) - 1);
    assert_int_equal(a.state, ANSWER_OK);
    assert_string_equal(answer_str(&a, "key", ""), "value with blanks");
    assert_string_equal(answer_str(&a, "empty", "?"), "");
    assert_string_equal(answer_str(&a, "back\\\\slash", ""), "a\\b\nc");
    assert_string_equal(answer_str(&a, "last", ""), "x");
    assert_false(answer_has(&a, "noblank"));
    answer_write(&a, &out);
    answer_parse(&b, (const char *)out.data, out.len);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.text, b.text, a.len);
    buf_fini(&out);
    answer_fini(&a);
    answer_fini(&b);
}

static const char *suggest(const char *word)
{
    static const char *const words[] = {"shm-size", "shm-free", "memlock-limit", "nic-up"};
    struct nearest n;
    nearest_init(&n, word);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        nearest_try(&n, words[i]);
    return nearest_best(&n);
}

static void test_nearest(void **state)
{
    assert_string_equal(suggest("shm-szie"), "shm-size");
    assert_string_equal(suggest("memlocklimit"), "memlock-limit");
    assert_string_equal(suggest("nic-pu"), "nic-up");
    assert_string_equal(suggest("SHM-Size"), "shm-size");
    assert_null(suggest("gpu-temp"));
    assert_null(suggest(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),       cmocka_unit_test(test_list),
        cmocka_unit_test(test_odd_files),   cmocka_unit_test(test_live),
        cmocka_unit_test(test_answer_text), cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
