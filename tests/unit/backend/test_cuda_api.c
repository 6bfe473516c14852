/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_api: the errors on machines with no driver, a driver that is too old, and a driver that
 * does not start. On the fake driver (tests/fake/cuda.c). Each case is a process of its own,
 * because a process opens the driver once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core/backend/cuda_api.h"
#include "tests/fake/cuda/use.h"

struct wanted {
    const char *fake;    /* the driver's library; NULL: none */
    const char *script;  /* FAKE_CUDA */
    const char *visible; /* CUDA_VISIBLE_DEVICES */
    int rc;
    const char *words[3];
};

/* Runs in a child. Returns 0 if the error is the expected one. */
static int run(const struct wanted *w)
{
    const struct cuda_api *api = NULL;
    struct err err = {0}, same = {0};
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (w->script)
        setenv("FAKE_CUDA", w->script, 1);
    if (w->visible)
        setenv("CUDA_VISIBLE_DEVICES", w->visible, 1);
    if (w->fake)
        fake_cuda_use(w->fake);
    int rc = cuda_api_start(&api, &err);
    int again = cuda_api_start(&api, &same);
    bool good = rc == w->rc && again == rc && strcmp(err.msg, same.msg) == 0;
    for (int i = 0; i < 3 && w->words[i]; i++)
        good = good && strstr(err.msg, w->words[i]);
    if (rc == 0)
        good = good && api && api->version == 13000 && strstr(api->path, "cuda.so");
    else
        good = good && !api;
    if (!good)
        printf("%s: %d \"%s\"\n", w->script ? w->script : "", rc, err.msg);
    return !good;
}

static void expect(const struct wanted *w)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int code = run(w);
        fflush(NULL);
        _exit(code);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_start(void **state)
{
    static const struct wanted table[] = {
        {.fake = "cuda", .rc = 0},
        {.fake = "cuda-old",
         .rc = -ENOTSUP,
         .words = {"cuda-driver-version", "cuGetErrorName", "580"}},
        {.fake = "cuda",
         .script = "version=10020",
         .rc = -ENOTSUP,
         .words = {"cuda-driver-version", "CUDA 10.2", "580"}},
        {.fake = "cuda",
         .script = "cuDriverGetVersion=999",
         .rc = -EIO,
         .words = {"cuDriverGetVersion: CUDA_ERROR_UNKNOWN (999)"}},
        {.fake = "cuda",
         .visible = "",
         .rc = -ENODEV,
         .words = {"cuda-visible-devices", "CUDA_VISIBLE_DEVICES= leaves no GPU"}},
        {.fake = "cuda", .visible = "-1", .rc = -ENODEV, .words = {"cuda-visible-devices"}},
        {.fake = "cuda",
         .script = "cuInit=100",
         .rc = -ENODEV,
         .words = {"cuInit: CUDA_ERROR_NO_DEVICE (100)", "(doctor: cuinit, HVD5021)"}},
        {.fake = "cuda",
         .script = "cuInit=804",
         .rc = -ENOTSUP,
         .words = {"cuda-driver-version", "cuda.so", "COMPAT_NOT_SUPPORTED"}},
        {.fake = "cuda",
         .script = "cuInit=12345",
         .rc = -EIO,
         .words = {"an error without a name (12345)"}},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        expect(&table[i]);
}

/* The error is one sentence, and nothing else is printed. */
static void test_no_driver(void **state)
{
    static const struct wanted none = {.rc = -ENOENT,
                                       .words = {"no NVIDIA driver here (libcuda.so.1", "HVD5001"}};
    void *real = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (real) {
        dlclose(real);
        print_message("SKIP: backend/cuda_api/no_driver: no driver: this machine has a driver\n");
        skip();
    }
    expect(&none);
}

static void test_words(void **state)
{
    const struct cuda_api *api;
    struct err err = {0};
    fake_cuda_use("cuda");
    assert_int_equal(cuda_api_open(&api, &err), 0);
    assert_int_equal(cuda_api_check(api, CUDA_OK, "cuX", &err), 0);
    assert_int_equal(err.code, 0);
    assert_int_equal(cuda_api_check(api, CUDA_OUT_OF_MEMORY, "cuX", NULL), -ENOMEM);
    assert_int_equal(cuda_api_check(api, CUDA_ILLEGAL_ADDRESS, "cuX", &err), -EFAULT);
    assert_string_equal(err.msg, "cuX: CUDA_ERROR_ILLEGAL_ADDRESS (700): said by the fake library");
    assert_true(cuda_api_sticks(CUDA_ILLEGAL_ADDRESS));
    assert_false(cuda_api_sticks(CUDA_OUT_OF_MEMORY));
    assert_int_equal(cuda_api_check(api, 424242, "cuX", NULL), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
