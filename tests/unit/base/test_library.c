/* SPDX-License-Identifier: Apache-2.0
 *
 * library: a mapped library is found by its soname, each file once, and a handle's file is known.
 * The libraries are copies of a library that every machine has, in a folder of the test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/library.h"

static char g_dir[64];

static void path_in(char *dst, size_t size, const char *name)
{
    assert_true(snprintf(dst, size, "%s/%s", g_dir, name) < (int)size);
}

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    ssize_t n = 0;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf, sizeof(buf))) > 0)
        assert_int_equal(write(out, buf, (size_t)n), n);
    assert_int_equal(n, 0);
    close(in);
    close(out);
}

/* Makes two files with the soname of libutil, which nothing here uses, and a hard link to the
 * first. */
static int setup(void **state)
{
    char a[128], b[128], link[128], source[PATH_MAX];
    void *util = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
    snprintf(g_dir, sizeof(g_dir), "/tmp/hvd-test-library-%d", (int)getpid());
    assert_int_equal(mkdir(g_dir, 0700), 0);
    assert_non_null(util);
    assert_int_equal(library_file(util, source, sizeof(source)), 0);
    dlclose(util);
    path_in(a, sizeof(a), "a.so");
    path_in(b, sizeof(b), "b.so");
    path_in(link, sizeof(link), "link.so");
    copy_file(source, a);
    copy_file(source, b);
    assert_int_equal(symlink("a.so", link), 0);
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"a.so", "b.so", "link.so"};
    char path[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        path_in(path, sizeof(path), names[i]);
        unlink(path);
    }
    return rmdir(g_dir);
}

static void test_nothing(void **state)
{
    struct library_copies c;
    assert_int_equal(library_mapped("libno-such-thing.so.1", &c), 0);
    assert_null(library_mapped_open("/no/such/libno-such-thing.so.1"));
}

static void test_libc(void **state)
{
    struct library_copies c;
    char real[PATH_MAX], said[PATH_MAX];
    assert_int_equal(library_mapped("libc.so.6", &c), 1);
    void *handle = library_mapped_open(c.path[0]);
    assert_non_null(handle);
    assert_non_null(dlsym(handle, "malloc"));
    assert_int_equal(library_file(handle, said, sizeof(said)), 0);
    assert_non_null(realpath(c.path[0], real));
    assert_string_equal(said, real);
    assert_int_equal(library_file(handle, said, 4), -ENAMETOOLONG);
    assert_int_equal(library_mapped("libc.so*", &c), 1);
    assert_int_equal(library_mapped("libc", &c),
                     0); /* the whole name is compared, unless it ends in a star */
    assert_true(library_mapped("lib*", &c) >= 2);
}

/* The program itself has no file name in the loader's list. */
static void test_program(void **state)
{
    char path[PATH_MAX];
    void *self = dlopen(NULL, RTLD_NOW);
    assert_non_null(self);
    assert_int_equal(library_file(self, path, sizeof(path)), -ENOENT);
    dlclose(self);
}

/* The loader compares inodes, so a second name of a file is no second copy. */
static void test_copies(void **state)
{
    struct library_copies c;
    char a[128], b[128], link[128], said[PATH_MAX];
    path_in(a, sizeof(a), "a.so");
    path_in(b, sizeof(b), "b.so");
    path_in(link, sizeof(link), "link.so");
    int before = library_mapped("libutil.so.1", &c);
    void *one = dlopen(a, RTLD_NOW | RTLD_LOCAL), *again = dlopen(link, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(one);
    assert_ptr_equal(one, again);
    assert_int_equal(library_mapped("libutil.so.1", &c), before + 1);
    void *two = dlopen(b, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(two);
    assert_int_equal(library_mapped("libutil.so.1", &c), before + 2);
    assert_string_equal(c.path[before], a);
    assert_string_equal(c.path[before + 1], b);
    assert_ptr_equal(library_mapped_open(c.path[before + 1]), two);
    assert_int_equal(library_file(again, said, sizeof(said)), 0);
    assert_string_equal(said, a);
    assert_int_equal(library_mapped("b.so", &c), 1);
    assert_int_equal(library_mapped("libutil.so.1", &c), before + 2);
    /* the file is deleted and the library stays mapped */
    assert_int_equal(unlink(b), 0);
    assert_int_equal(library_mapped("libutil.so.1", &c), before + 2);
    assert_ptr_equal(library_mapped_open(c.path[before + 1]), two);
    assert_int_equal(library_file(two, said, sizeof(said)), 0);
    assert_string_equal(said, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_libc),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests_name("base/library", tests, setup, teardown);
}
