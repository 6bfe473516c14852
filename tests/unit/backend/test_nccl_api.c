/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_api: versions, the copy that is used, and the errors with no copy, two copies, or
 * an old one. Each case is a child process, because a loaded library stays loaded. The libraries
 * are those of tests/fake; "torch" is one of them under another name.
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
#include <sys/wait.h>
#include <unistd.h>

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"
#include "core/base/library.h"
#include "tests/fake/cuda/use.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char g_dir[64];

static void test_versions(void **state)
{
    static const struct {
        int code, version;
        const char *text;
    } v[] = {{22707, 22707, "2.27.7"}, {21005, 21005, "2.10.5"}, {20908, 20908, "2.9.8"},
             {2804, 20804, "2.8.4"},   {2708, 20708, "2.7.8"},   {2402, 20402, "2.4.2"},
             {23007, 23007, "2.30.7"}, {30001, 30001, "3.0.1"},  {0, 0, "0.0.0"},
             {-3, 0, "0.0.0"}};
    for (size_t i = 0; i < COUNT(v); i++) {
        char text[16];
        assert_int_equal(nccl_version_decode(v[i].code), v[i].version);
        assert_string_equal(nccl_version_text(nccl_version_decode(v[i].code), text), v[i].text);
    }
}

/* The version text in a file. test_nccl_real and a fuzzer test the reader of shared objects. */
static void test_builds(void **state)
{
    static const struct {
        const char *text;
        int cuda;
    } v[] = {{"..NCCL version 2.27.7+cuda13.0..", 13000},
             {"NCCL version 2.8.4+cuda11.0", 11000},
             {"NCCL version 2.21.5+cuda12.4", 12040},
             {"NCCL version %d.%d NCCL version 2.18.1 compiled with CUDA 12.1 NCCL version "
              "2.18.1+cuda12.1",
              12010},
             {"NCCL version 2.27.7+cuda", 0},
             {"NCCL version 2.27.7+cuda13", 0},
             {"NCCL version 2.27.7+cuda13.", 0},
             {"NCCL version 2.27.7", 0},
             {"NCCL version ", 0},
             {"", 0}};
    for (size_t i = 0; i < COUNT(v); i++)
        assert_int_equal(nccl_build_parse(v[i].text, strlen(v[i].text)), v[i].cuda);
    assert_int_equal(nccl_build_of("/no/such/file"), 0);
}

/* ---- cases, each in a child ---- */

static const char *fake(const char *version)
{
    static char path[4][PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    fake_nccl_path(version, path[next]);
    return path[next];
}

/* Expected result of a case: rc, and part of the error or of the name. */
struct want {
    int rc;
    const char *words[3];
};

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: ", __func__, __LINE__);                                                 \
            printf(__VA_ARGS__);                                                                   \
            puts("");                                                                              \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int load_and_compare(const struct want *want)
{
    const struct nccl_api *api = NULL;
    struct err err = {0};
    char said[2 * PATH_MAX];
    int rc = nccl_api_load(&api, &err);
    if (rc == 0)
        nccl_api_name(api, said, sizeof(said));
    else
        snprintf(said, sizeof(said), "%s", err.msg);
    CHECK(rc == want->rc, "%d instead of %d: %s", rc, want->rc, said);
    for (size_t i = 0; i < COUNT(want->words) && want->words[i]; i++)
        CHECK(strstr(said, want->words[i]), "\"%s\" is not in \"%s\"", want->words[i], said);
    CHECK((rc == 0) == (api != NULL), "loaded, or not");
    return 0;
}

static int none(void)
{
    return load_and_compare(&(struct want){-ENOENT, {"libnccl.so.2", "nccl-load, HVD6001"}});
}

static int asked(void)
{
    setenv("HVD_NCCL_LIB", fake("2.27"), 1);
    return load_and_compare(
        &(struct want){0, {"2.27.7 (", "nccl-2.27/libnccl.so.2, HVD_NCCL_LIB)"}});
}

static int asked_but_missing(void)
{
    setenv("HVD_NCCL_LIB", "/no/such/libnccl.so.2", 1);
    return load_and_compare(&(struct want){-ENOENT, {"/no/such/libnccl.so.2", "HVD6001"}});
}

/* A copy that the framework has mapped is used, whatever other copies there are and whatever its
 * folder. */
static int mapped(void)
{
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    setenv("PYTHONPATH", g_dir, 1);
    return load_and_compare(
        &(struct want){0, {"2.18.6 (", "nccl-2.18/libnccl.so.2, mapped already)"}});
}

static int mapped_and_asked_the_same(void)
{
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    setenv("HVD_NCCL_LIB", fake("2.18"), 1);
    return load_and_compare(&(struct want){0, {"2.18.6", "mapped already"}});
}

static int mapped_and_asked_another(void)
{
    struct library_copies c;
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    setenv("HVD_NCCL_LIB", fake("2.27"), 1);
    if (load_and_compare(
            &(struct want){-EEXIST, {"HVD_NCCL_LIB is ", "has loaded", "nccl-multiple, HVD6002"}}))
        return 1;
    CHECK(library_mapped("libnccl.so.2", &c) == 1, "the second one was loaded");
    return 0;
}

static int two_mapped(void)
{
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    CHECK(dlopen(fake("2.27"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    return load_and_compare(&(struct want){
        -EEXIST, {"2 copies of NCCL", "nccl-2.18/libnccl.so.2 and ", "nccl-multiple, HVD6002"}});
}

/* As with LD_PRELOAD: the first is found by every call, and named in the variable. */
static int two_mapped_one_preloaded(void)
{
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    CHECK(dlopen(fake("2.27"), RTLD_NOW | RTLD_GLOBAL), "%s", dlerror());
    char preload[2 * PATH_MAX];
    snprintf(preload, sizeof(preload), "/no/such.so %s:", fake("2.27"));
    setenv("LD_PRELOAD", preload, 1);
    return load_and_compare(
        &(struct want){0, {"2.27.7 (", "nccl-2.27/libnccl.so.2, mapped already)"}});
}

static int two_mapped_another_preloaded(void)
{
    CHECK(dlopen(fake("2.18"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    CHECK(dlopen(fake("2.27"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    setenv("LD_PRELOAD", fake("2.27"), 1); /* set, and not loaded so */
    return load_and_compare(&(struct want){-EEXIST, {"2 copies of NCCL"}});
}

static int too_old(void)
{
    setenv("HVD_NCCL_LIB", fake("2.13"), 1);
    return load_and_compare(&(struct want){
        -ENOTSUP,
        {"2.13.4 (/", "nccl-2.13/libnccl.so.2, HVD_NCCL_LIB) is too old: hvd needs NCCL 2.14 ",
         "HVD6003"}});
}

/* Before 2.9 NCCL numbers its versions in another way. */
static int much_too_old(void)
{
    setenv("HVD_NCCL_LIB", fake("2.13"), 1);
    setenv("FAKE_NCCL_VERSION", "2708", 1);
    return load_and_compare(&(struct want){-ENOTSUP, {"2.7.8 (", "too old", "2.14"}});
}

static int no_version(void)
{
    setenv("HVD_NCCL_LIB", fake("2.27"), 1);
    setenv("FAKE_NCCL_FAIL", "ncclGetVersion:1:sync:3", 1);
    return load_and_compare(
        &(struct want){-ELIBBAD, {"libnccl.so.2: ncclGetVersion answers 3", "HVD6001"}});
}

/* A shared library that is not NCCL. */
static int foreign(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/foreign.so", g_dir);
    setenv("HVD_NCCL_LIB", path, 1);
    return load_and_compare(
        &(struct want){-ELIBBAD, {"foreign.so has no ncclGetVersion", "2.14", "HVD6001"}});
}

/* ---- torch: site/torch/lib/libtorch_cpu.so, site/nvidia/nccl/lib/libnccl.so.2 ---- */

static void *open_torch(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/torch/lib/libtorch_cpu.so", g_dir);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static int of_torch(void)
{
    CHECK(open_torch(), "%s", dlerror());
    return load_and_compare(
        &(struct want){0, {"2.14.3 (", "nvidia/nccl/lib/libnccl.so.2, beside torch)"}});
}

/* A libtorch that contains NCCL. */
static int in_torch(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/old/libtorch_cuda.so", g_dir);
    CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    return load_and_compare(&(struct want){0, {"2.14.3 (", "old/libtorch_cuda.so, inside torch)"}});
}

static int package(void)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "relative:/no/such:%s", g_dir);
    setenv("PYTHONPATH", path, 1);
    return load_and_compare(&(struct want){0, {"2.14.3 (", "a Python package)"}});
}

static int environment(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/venv", g_dir);
    setenv("VIRTUAL_ENV", path, 1);
    return load_and_compare(&(struct want){0, {"2.14.3 (", "a Python package)"}});
}

/* Each version that is not too old has all functions. */
static int functions(void)
{
    static const char *const versions[] = {"2.14", "2.18", "2.27"};
    for (size_t i = 0; i < COUNT(versions); i++) {
        struct nccl_place place = {.origin = NCCL_ASKED};
        struct nccl_api api;
        struct err err = {0};
        fake_nccl_path(versions[i], place.path);
        CHECK(nccl_api_open(&place, &api, &err) == 0, "%s", err.msg);
        CHECK(strncmp(api.text, versions[i], strlen(versions[i])) == 0, "%s", api.text);
        CHECK(strcmp(api.ncclGetErrorString(0), "no error") == 0, "%s", api.text);
    }
    return 0;
}

/* After a failure the next call searches again. After a success it does not. */
static int again(void)
{
    const struct nccl_api *a = NULL, *b = NULL;
    CHECK(nccl_api_load(&a, NULL) == -ENOENT, "there is one");
    setenv("HVD_NCCL_LIB", fake("2.27"), 1);
    CHECK(nccl_api_load(&a, NULL) == 0, "there is none");
    unsetenv("HVD_NCCL_LIB");
    CHECK(nccl_api_load(&b, NULL) == 0 && a == b, "another one");
    return 0;
}

/* The NCCL beside torch does not load: another copy, here that of the venv, must not be used
 * instead. The last case, because it changes the folder. */
static int of_torch_but_broken(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/nvidia/nccl/lib/libnccl.so.2", g_dir);
    CHECK(truncate(path, 100) == 0, "%s", path);
    snprintf(path, sizeof(path), "%s/venv", g_dir);
    setenv("VIRTUAL_ENV", path, 1);
    CHECK(open_torch(), "%s", dlerror());
    return load_and_compare(
        &(struct want){-ELIBBAD, {"NCCL does not load: ", "nvidia/nccl/lib/libnccl.so.2"}});
}

static int run_child(int (*fn)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = fn();
        fflush(stdout);
        _exit(rc);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static void test_cases(void **state)
{
    static const struct {
        const char *name;
        int (*fn)(void);
    } cases[] = {
        {"none", none},
        {"asked", asked},
        {"asked_but_missing", asked_but_missing},
        {"mapped", mapped},
        {"mapped_and_asked_the_same", mapped_and_asked_the_same},
        {"mapped_and_asked_another", mapped_and_asked_another},
        {"two_mapped", two_mapped},
        {"two_mapped_one_preloaded", two_mapped_one_preloaded},
        {"two_mapped_another_preloaded", two_mapped_another_preloaded},
        {"too_old", too_old},
        {"much_too_old", much_too_old},
        {"no_version", no_version},
        {"foreign", foreign},
        {"of_torch", of_torch},
        {"in_torch", in_torch},
        {"package", package},
        {"environment", environment},
        {"functions", functions},
        {"again", again},
        {"of_torch_but_broken", of_torch_but_broken},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (run_child(cases[i].fn) != 0)
            fail_msg("%s", cases[i].name);
    }
}

/* ---- the folder ---- */

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    ssize_t n = 0;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf, sizeof(buf))) > 0)
        assert_int_equal(write(out, buf, (size_t)n), n);
    assert_int_equal(n, 0);
    close(in);
    close(out);
}

static const char *const folders[] = {"",
                                      "torch",
                                      "torch/lib",
                                      "old",
                                      "nvidia",
                                      "nvidia/nccl",
                                      "nvidia/nccl/lib",
                                      "venv",
                                      "venv/lib",
                                      "venv/lib/python3.11",
                                      "venv/lib/python3.11/site-packages",
                                      "venv/lib/python3.11/site-packages/torch",
                                      "venv/lib/python3.11/site-packages/torch/lib"};

static const char *const files[] = {"torch/lib/libtorch_cpu.so", "old/libtorch_cuda.so",
                                    "foreign.so", "nvidia/nccl/lib/libnccl.so.2",
                                    "venv/lib/python3.11/site-packages/torch/lib/libnccl.so.2"};

static void in_dir(char *dst, const char *name)
{
    snprintf(dst, PATH_MAX, "%s%s%s", g_dir, name[0] ? "/" : "", name);
}

/* Writes another soname of the same length into a library: the soname decides whether a mapped
 * file is NCCL. */
static void rename_soname(const char *path, const char *now)
{
    static const char was[] = "libnccl.so.2";
    char *data = NULL;
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    rewind(f);
    data = malloc((size_t)n);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)n, f), n);
    for (char *at = data; (at = memmem(at, (size_t)(data + n - at), was, sizeof(was))) != NULL;
         at++)
        memcpy(at, now, sizeof(was));
    rewind(f);
    assert_int_equal(fwrite(data, 1, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
    free(data);
}

static int setup(void **state)
{
    char to[PATH_MAX], from[PATH_MAX];
    static const char *const clear[] = {"HVD_NCCL_LIB",      "HOROVOD_NCCL_LIB", "VIRTUAL_ENV",
                                        "CONDA_PREFIX",      "PYTHONPATH",       "LD_LIBRARY_PATH",
                                        "FAKE_NCCL_VERSION", "FAKE_NCCL_FAIL",   "FAKE_NCCL_HANG"};
    for (size_t i = 0; i < COUNT(clear); i++)
        unsetenv(clear[i]);
    snprintf(g_dir, sizeof(g_dir), "/tmp/hvd-test-nccl-%d", (int)getpid());
    for (size_t i = 0; i < COUNT(folders); i++) {
        in_dir(to, folders[i]);
        assert_int_equal(mkdir(to, 0700), 0);
    }
    void *util = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(util);
    assert_int_equal(library_file(util, from, sizeof(from)), 0);
    in_dir(to, files[0]);
    copy_file(fake("2.14"), to);
    rename_soname(to, "libtorch_cpu");
    in_dir(to, files[1]);
    copy_file(fake("2.14"), to);
    rename_soname(to, "libtorch_cud");
    in_dir(to, files[2]);
    copy_file(from, to);
    in_dir(to, files[3]);
    copy_file(fake("2.14"), to);
    in_dir(to, files[4]);
    copy_file(fake("2.14"), to);
    return 0;
}

static int teardown(void **state)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < COUNT(files); i++) {
        in_dir(path, files[i]);
        unlink(path);
    }
    for (size_t i = COUNT(folders); i-- > 0;) {
        in_dir(path, folders[i]);
        rmdir(path);
    }
    return access(g_dir, F_OK) == 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_builds),
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests_name("backend/nccl_api", tests, setup, teardown);
}
