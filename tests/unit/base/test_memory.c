/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory: how much memory is left, by limits of cgroup v1 and v2 and by the machine's memory,
 * from written files; and what this machine says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "core/base/memory.h"

#define MIB (UINT64_C(1) << 20)

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/hvd-test-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void write_file(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(uint64_t limit, uint64_t left, bool machine)
{
    struct memory m;
    assert_true(memory_read(root, &m));
    assert_int_equal(m.limit, limit);
    assert_int_equal(m.left, left);
    assert_int_equal(m.machine, machine);
}

static void test_machine(void **state)
{
    struct memory m = {1, 2, false};
    (void)state;
    assert_false(memory_read(root, &m));
    assert_true(m.limit == 1 && m.left == 2);
    write_file("/proc/meminfo", "MemTotal:    4096 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n");
    expect(4 * MIB, 2 * MIB, true);
    write_file("/proc/meminfo",
               "MemTotal: 4096 kB\nMemAvailable: 2048 kB\nSwapTotal: 9999 kB\nSwapFree: 1024 kB\n");
    expect(4 * MIB, 3 * MIB, true);
}

/* The group with the least room counts, wherever its parents' limits are. */
static void test_v2(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\nSwapFree: 0 kB\n");
    write_file("/proc/self/cgroup", "0::/a/b\n");
    write_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    write_file("/sys/fs/cgroup/a/b/memory.current", "4096\n");
    expect(1024 * MIB, 1024 * MIB, true);
    write_file("/sys/fs/cgroup/a/memory.max", "104857600\n");
    write_file("/sys/fs/cgroup/a/memory.current", "94371840\n");
    expect(100 * MIB, 10 * MIB, false);
    /* Page cache is dropped first; shared memory (part of "file") is not. */
    write_file("/sys/fs/cgroup/a/memory.stat",
               "anon 1\nfile 52428800\nshmem 31457280\ninactive_file 10485760\n"
               "active_file 10485760\n");
    expect(100 * MIB, 30 * MIB, false);
    write_file("/sys/fs/cgroup/a/b/memory.max", "8388608\n");
    write_file("/sys/fs/cgroup/a/b/memory.current", "9999999\n");
    expect(8 * MIB, 0, false);
}

/* What may be swapped makes room. */
static void test_swap(void **state)
{
    (void)state;
    write_file("/proc/meminfo",
               "MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\nSwapFree: 20480 kB\n");
    write_file("/proc/self/cgroup", "0::/\n");
    write_file("/sys/fs/cgroup/memory.max", "104857600\n");
    write_file("/sys/fs/cgroup/memory.current", "104857600\n");
    expect(100 * MIB, 20 * MIB, false);
    write_file("/sys/fs/cgroup/memory.swap.max", "8388608\n");
    write_file("/sys/fs/cgroup/memory.swap.current", "6291456\n");
    expect(100 * MIB, 2 * MIB, false);
    write_file("/sys/fs/cgroup/memory.swap.max", "0\n");
    expect(100 * MIB, 0, false);
}

static void test_v1(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "7:cpu:/x\n4:memory:/docker/abc\n0::/\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    write_file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "67108864\n");
    write_file("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "50331648\n");
    write_file("/sys/fs/cgroup/memory/docker/abc/memory.stat",
               "inactive_file 1\ntotal_inactive_file 4194304\ntotal_active_file 0\n");
    expect(64 * MIB, 20 * MIB, false);
}

static void test_garbage(void **state)
{
    struct memory m;
    (void)state;
    write_file("/proc/meminfo", "MemAvailable\n\nMemTotal: x\n");
    write_file("/proc/self/cgroup", "0::/\n4:memory\n");
    write_file("/sys/fs/cgroup/memory.max", "nonsense\n");
    write_file("/sys/fs/cgroup/memory.current", "\n");
    assert_false(memory_read(root, &m));
}

static void test_here(void **state)
{
    struct memory m;
    char text[32];
    (void)state;
    assert_true(memory_read("", &m));
    assert_true(m.limit > 0 && m.left > 0);
    assert_string_equal(memory_text(3 << 19, text, sizeof(text)), "1.5 MiB");
    assert_string_equal(memory_text(1023, text, sizeof(text)), "1023 B");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_v2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_swap, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_v1, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_garbage, make_root, remove_root),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
