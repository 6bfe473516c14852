/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prober: the program hvd-probe on this machine's own libraries, on damaged files and on names
 * that do not exist; and its readers of ELF files and of the loader's cache on made-up bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "diagnostics/answer.h"
#include "tests/harness/build_path.h"
/* hvd-probe is not a library: this test includes its source files. */
#include "diagnostics/prober/elf.c"
#include "diagnostics/prober/ld.c"

static char prober[PATH_MAX];

/* Runs `hvd-probe NAME [FILE]`, parses its output and returns its exit code. */
static int ask(const char *name, const char *file, struct answer *ret)
{
    char command[3 * PATH_MAX];
    static char text[64 << 10];
    snprintf(command, sizeof(command), "timeout 20 '%s' %s '%s' 2>/dev/null", prober, name,
             file ? file : "1");
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text), f);
    int status = pclose(f);
    answer_parse(ret, text, n);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The first copy is the one that the loader takes. Its version is also the answer's version. */
static void look_at(const char *name, const char *file, bool version)
{
    struct answer a;
    assert_int_equal(ask(name, NULL, &a), 0);
    const char *path = answer_str(&a, "path", NULL);
    if (!path) { /* this image has no such library, and the answer says so */
        assert_true(answer_has(&a, "error") || answer_count(&a, "lib") == 0);
        answer_fini(&a);
        return;
    }
    assert_non_null(strstr(path, file));
    assert_string_equal(answer_str_at(&a, "lib", 0, "path", ""), path);
    assert_string_equal(answer_str_at(&a, "lib", 0, "how", ""), "loader");
    if (version) {
        assert_true(answer_str(&a, "version", "")[0] >= '1');
        assert_string_equal(answer_str_at(&a, "lib", 0, "version", ""),
                            answer_str(&a, "version", ""));
    }
    answer_fini(&a);
}

static void test_libraries(void **state)
{
    look_at("mpi", "libmpi.so", true);
    look_at("pmix", "libpmix.so", true);
    look_at("hwloc", "libhwloc.so", true);
    look_at("ucx", "libucp.so", true);
    look_at("libfabric", "libfabric.so", true);
    look_at("ibverbs", "libibverbs.so", false);
    look_at("numa", "libnuma.so", false);
    look_at("nccl", "libnccl.so", true);
    look_at("cudart", "libcudart.so", true);
}

static void test_framework(void **state)
{
    struct answer a;
    assert_int_equal(ask("framework", NULL, &a), 0);
    assert_true(answer_str(&a, "glibc", "")[0] == '2');
    assert_true(answer_count(&a, "python") > 0);
    answer_fini(&a);
}

static void test_elf_of_itself(void **state)
{
    struct answer a;
    assert_int_equal(ask("elf", prober, &a), 0);
    assert_string_equal(answer_str_at(&a, "object", 0, "path", ""), prober);
    assert_true(answer_str_at(&a, "object", 0, "glibc", "")[0] == '2');
    assert_string_equal(answer_str_at(&a, "object", 0, "missing", "none"), "none");
    answer_fini(&a);
}

/* Damaged and foreign files are reported, not loaded. */
static void test_bad_files(void **state)
{
    char path[] = "/tmp/hvd-prober-XXXXXX";
    struct answer a;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "\177ELF not really", 15), 15);
    close(fd);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"nccl", "mpi", "elf"};
        assert_int_equal(ask(names[i], path, &a), 0);
        assert_true(answer_has(&a, "lib.0.error") || answer_has(&a, "object.0.error"));
        answer_fini(&a);
    }
    unlink(path);
    assert_int_equal(ask("no-such-probe", NULL, &a), EINVAL);
    assert_int_equal(a.len, 0);
    answer_fini(&a);
}

/* ---- elf.c: every cut and many flips of a real file ---- */

static void test_elf_bytes(void **state)
{
    struct elf whole, e;
    uint32_t seed = 12345;
    const uint8_t *section;
    size_t len;
    assert_int_equal(elf_map(&whole, "/proc/self/exe"), 0);
    assert_true(whole.nneeded > 0);
    assert_true(elf_section(&whole, ".rodata", &section, &len));
    assert_true(elf_rodata_has(&whole, "of a real file for the test", NULL, NULL));
    assert_false(elf_section(&whole, ".no-such-section", &section, &len));
    size_t size = whole.len < (1u << 20) ? whole.len : 1u << 20;
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    for (size_t n = 0; n < 4096; n += 7) {
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, whole.data, n);
        elf_parse(&e, exact, n);
        free(exact);
    }
    for (int i = 0; i < 300; i++) {
        memcpy(copy, whole.data, size);
        for (int k = 0; k < 20; k++) {
            seed = seed * 1664525 + 1013904223;
            copy[(seed >> 8) % (k < 10 ? 2048 : size)] = (uint8_t)(seed >> 24);
        }
        memcpy(copy, ELFMAG, SELFMAG);
        if (elf_parse(&e, copy, size) == 0)
            elf_section(&e, ".rodata", &section, &len);
    }
    free(copy);
    elf_unmap(&whole);
    assert_int_equal(elf_parse(&e, "", 0), -ENOEXEC);
    assert_int_equal(elf_map(&e, "/etc/passwd"), -ENOEXEC);
    assert_int_equal(elf_map(&e, "/etc"), -ENOEXEC);
    assert_int_equal(elf_map(&e, "/nonexistent"), -ENOENT);
}

/* ---- ld.c ---- */

struct cache_entry {
    int32_t flags;
    uint32_t key, value, osversion;
    uint64_t hwcap;
};

/* A cache with two entries of one name and one of another machine. */
static size_t make_cache(char *dst)
{
    static const char strings[] = "libx.so.1\0/a/libx.so.1\0/b/libx.so.1\0liby.so\0/c/liby.so";
    uint32_t base = HEADER + 3 * ENTRY;
    struct cache_entry e[3] = {
        {.flags = (int32_t)(CACHE_MACHINE | 3), .key = base, .value = base + 10},
        {.flags = (int32_t)(CACHE_MACHINE | 3), .key = base, .value = base + 23},
        {.flags = 0x0500 | 3, .key = base + 36, .value = base + 44}};
    uint32_t n = 3;
    memset(dst, 0, HEADER);
    memcpy(dst, CACHE_MAGIC, strlen(CACHE_MAGIC));
    memcpy(dst + strlen(CACHE_MAGIC), &n, 4);
    memcpy(dst + HEADER, e, sizeof(e));
    memcpy(dst + base, strings, sizeof(strings));
    return base + sizeof(strings);
}

static void test_cache(void **state)
{
    char cache[512], old[600];
    size_t len = make_cache(cache);
    assert_string_equal(ld_cache_find(cache, len, "libx.so.1", 0), "/a/libx.so.1");
    assert_string_equal(ld_cache_find(cache, len, "libx.so.1", 1), "/b/libx.so.1");
    assert_null(ld_cache_find(cache, len, "libx.so.1", 2));
    assert_null(ld_cache_find(cache, len, "liby.so", 0));
    assert_null(ld_cache_find(NULL, 0, "libx.so.1", 0));
    memset(old, 0, sizeof(old));
    memcpy(old, OLD_MAGIC, strlen(OLD_MAGIC));
    memcpy(old + 16, cache, len);
    assert_string_equal(ld_cache_find(old, 16 + len, "libx.so.1", 1), "/b/libx.so.1");
    for (size_t n = 0; n < len; n++) { /* a cache that is cut anywhere */
        char *exact = malloc(n ? n : 1);
        memcpy(exact, cache, n);
        for (int i = 0; i < 3; i++)
            ld_cache_find(exact, n, "libx.so.1", i);
        free(exact);
    }
    memset(cache + HEADER + 4, 0xff, 8); /* strings beyond the end */
    assert_string_equal(ld_cache_find(cache, len, "libx.so.1", 0), "/b/libx.so.1");
}

static bool count_one(void *arg, const char *path, const char *how)
{
    (*(int *)arg)++;
    return true;
}

/* The libraries of this program are found, and an unknown name is not. */
static void test_resolve(void **state)
{
    struct ld ld;
    struct elf e;
    char path[PATH_MAX];
    int n = 0;
    ld_init(&ld, NULL);
    assert_int_equal(elf_map(&e, "/proc/self/exe"), 0);
    for (int i = 0; i < e.nneeded; i++)
        assert_int_equal(ld_resolve(&ld, &e, "/proc/self/exe", e.needed[i], path, sizeof(path)), 0);
    assert_int_equal(ld_resolve(&ld, &e, "/proc/self/exe", "libnobody.so.9", path, sizeof(path)),
                     -ENOENT);
    ld_each(&ld, "libc.so.6", count_one, &n);
    assert_true(n > 0);
    elf_unmap(&e);
    ld_fini(&ld);
    e = (struct elf){.runpath = "/nowhere:$ORIGIN/../lib"};
    char dst[64];
    expand_origin("${ORIGIN}/x", "/o", dst, sizeof(dst));
    assert_string_equal(dst, "/o/x");
    expand_origin("$ORIGIN/../lib", "/o", dst, sizeof(dst));
    assert_string_equal(dst, "/o/../lib");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),     cmocka_unit_test(test_framework),
        cmocka_unit_test(test_elf_of_itself), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_elf_bytes),     cmocka_unit_test(test_cache),
        cmocka_unit_test(test_resolve),
    };
    build_path("hvd-probe", prober);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
