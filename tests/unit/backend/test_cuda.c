/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda: a device, cuda_enter() and cuda_leave(), streams, events, memory and kernels on the
 * fake driver (tests/fake/cuda). After the first round nothing is created any more. Each call of
 * the driver fails in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/cuda.h"
#include "core/backend/cuda_kernels.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"

#define N 5000

static const struct fake_cuda_control *fake;

/* A device and what an operation of a back end uses on it. */
struct setup {
    struct cuda_device *d;
    struct cuda_visit visit;
    struct CUstream_st *stream;
    struct cuda_memory host, scratch;
};

static int set_up(struct setup *s, int ordinal, struct err *err)
{
    *s = (struct setup){.host.host = true};
    int rc = cuda_device_open(ordinal, &s->d, err);
    if (rc == 0)
        rc = cuda_enter(s->d, &s->visit, err);
    if (rc == 0)
        rc = cuda_stream_create(s->d, &s->stream, err);
    return rc;
}

static void tear_down(struct setup *s)
{
    if (s->visit.device && !s->d->lost.code) {
        cuda_memory_free(s->d, &s->host);
        cuda_memory_free(s->d, &s->scratch);
        cuda_stream_destroy(s->d, s->stream);
    }
    cuda_leave(&s->visit);
    cuda_device_close(s->d);
}

/* Polls until the event is complete, for at most 5 s. */
static int finish(struct setup *s, struct CUevent_st *event, struct err *err)
{
    uint64_t deadline = deadline_in_ms(5000);
    int rc;
    while ((rc = cuda_event_done(s->d, event, err)) == 1 && !deadline_passed(deadline))
        sched_yield();
    return rc == 1 ? err_set(err, ETIMEDOUT, "no end in 5 s") : rc;
}

/* Copies numbers to the device, converts them there, and copies them back. */
static int round_trip(struct setup *s, struct err *err)
{
    const struct gpu_change change = {HVD_FLOAT32, HVD_FLOAT16, 1.0, 2, 1.0};
    struct CUevent_st *event = NULL;
    int rc = cuda_memory_reserve(s->d, &s->host, 8 * N, err);
    if (rc == 0)
        rc = cuda_memory_reserve(s->d, &s->scratch, 8 * N, err);
    if (rc < 0)
        return rc;
    float *numbers = s->host.at;
    char *device = s->scratch.at, *back = (char *)s->host.at + 4 * N;
    for (int i = 0; i < N; i++)
        numbers[i] = (float)i;
    const struct gpu_piece piece = {device, device + 4 * N, N};
    if ((rc = cuda_event_get(s->d, &event, err)) == 0 &&
        (rc = cuda_copy(s->d, CUDA_COPY_IN, device, numbers, 4 * N, s->stream, err)) == 0 &&
        (rc = cuda_move(s->d, &change, &piece, 1, s->stream, err)) == 0 &&
        (rc = cuda_copy(s->d, CUDA_COPY_OUT, back, device + 4 * N, 2 * N, s->stream, err)) == 0 &&
        (rc = cuda_event_record(s->d, event, s->stream, err)) == 0)
        rc = finish(s, event, err);
    cuda_event_put(s->d, event);
    /* 2048 / 2 in float16 */
    if (rc == 0 && memcmp(back + 2 * 2048, (uint16_t[]){0x6400}, 2) != 0)
        rc = err_set(err, EBADMSG, "wrong numbers come back");
    return rc;
}

static void test_device(void **state)
{
    struct setup s;
    struct err err = {0};
    assert_int_equal(set_up(&s, 1, &err), 0);
    assert_int_equal(s.d->ordinal, 1);
    assert_int_equal(s.d->sm, 90);
    assert_int_equal(s.d->multiprocessors, 132);
    assert_int_equal(s.d->priority, -5);
    assert_string_equal(s.d->name, "NVIDIA H100 80GB HBM3");
    assert_memory_equal(s.d->identity, "AAAAAAAAAAAAAAAA", sizeof(s.d->identity));
    assert_int_equal(round_trip(&s, &err), 0);
    tear_down(&s);
    assert_int_equal(fake->live(), 0);
    assert_int_equal(cuda_device_open(2, &s.d, &err), -ENODEV);
    assert_non_null(strstr(err.msg, "there is no GPU 2: this process sees 2"));
    cuda_device_close(NULL);
    setenv("FAKE_CUDA", "cuDeviceGetUuid_v2=801", 1);
    assert_int_equal(cuda_device_open(1, &s.d, &err), 0);
    assert_string_equal((char *)s.d->identity, "0000:08:00.0");
    cuda_device_close(s.d);
    unsetenv("FAKE_CUDA");
}

/* A second round creates no stream, event or memory, and loads no module. */
static void test_steady(void **state)
{
    static const char *const makes[] = {"cuMemAlloc_v2",    "cuMemHostAlloc",
                                        "cuEventCreate",    "cuStreamCreateWithPriority",
                                        "cuModuleLoadData", "cuDevicePrimaryCtxRetain"};
    enum { MAKES = sizeof(makes) / sizeof(makes[0]) };
    long before[MAKES];
    struct setup s;
    struct err err = {0};
    assert_int_equal(set_up(&s, 0, &err), 0);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(round_trip(&s, &err), 0);
        for (int i = 0; i < MAKES; i++) {
            assert_true(fake->calls(makes[i]) > 0);
            if (round > 0)
                assert_int_equal(fake->calls(makes[i]), before[i]);
            before[i] = fake->calls(makes[i]);
        }
    }
    tear_down(&s);
    assert_int_equal(fake->live(), 0);
}

/* An event of a busy device is polled, and no call blocks. */
static void test_asks(void **state)
{
    struct setup s;
    struct err err = {0};
    struct CUevent_st *event;
    assert_int_equal(set_up(&s, 0, &err), 0);
    assert_int_equal(cuda_event_get(s.d, &event, &err), 0);
    fake->stall(true);
    assert_int_equal(cuda_event_record(s.d, event, s.stream, &err), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cuda_event_done(s.d, event, &err), 1);
    fake->stall(false);
    assert_int_equal(finish(&s, event, &err), 0);
    cuda_event_put(s.d, event);
    tear_down(&s);
}

/* The second stream waits for the first one's event before it copies what the first has copied, in
 * each of five rounds. */
static void test_order(void **state)
{
    struct setup s;
    struct err err = {0};
    struct CUstream_st *second;
    struct CUevent_st *first, *done;
    assert_int_equal(set_up(&s, 0, &err), 0);
    assert_int_equal(cuda_stream_create(s.d, &second, &err), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &s.host, 16, &err), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, 16, &err), 0);
    assert_int_equal(cuda_event_get(s.d, &first, &err), 0);
    assert_int_equal(cuda_event_get(s.d, &done, &err), 0);
    int *host = s.host.at, *device = s.scratch.at;
    fake->delay(3000);
    for (int i = 1; i <= 5; i++) {
        host[0] = i;
        host[1] = 0;
        assert_int_equal(cuda_copy(s.d, CUDA_COPY_IN, device, host, 4, s.stream, &err), 0);
        assert_int_equal(cuda_event_record(s.d, first, s.stream, &err), 0);
        assert_int_equal(cuda_stream_wait(s.d, second, first, &err), 0);
        assert_int_equal(cuda_copy(s.d, CUDA_COPY_INSIDE, device + 1, device, 4, second, &err), 0);
        assert_int_equal(cuda_copy(s.d, CUDA_COPY_OUT, host + 1, device + 1, 4, second, &err), 0);
        assert_int_equal(cuda_event_record(s.d, done, second, &err), 0);
        assert_int_equal(finish(&s, done, &err), 0);
        assert_int_equal(host[1], i);
    }
    fake->delay(0);
    cuda_event_put(s.d, first);
    cuda_event_put(s.d, done);
    cuda_stream_destroy(s.d, second);
    tear_down(&s);
    assert_int_equal(fake->live(), 0);
}

/* A sticky error of CUDA: reported with its name by the first call that meets it, and with the
 * same message by every later call. */
static void test_sticks(void **state)
{
    struct setup s;
    struct cuda_visit visit = {0};
    struct err err = {0}, again = {0};
    assert_int_equal(set_up(&s, 0, &err), 0);
    fake->break_device(0, CUDA_ILLEGAL_ADDRESS);
    assert_int_equal(round_trip(&s, &err), -EFAULT);
    assert_non_null(strstr(err.msg, "GPU 0 (NVIDIA H100 80GB HBM3): "));
    assert_non_null(strstr(err.msg, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_non_null(strstr(err.msg, "start it anew"));
    assert_int_equal(cuda_enter(s.d, &visit, &again), -EFAULT);
    assert_string_equal(err.msg, again.msg);
    fake->mend(0);
    /* mend() repairs the fake device, so that tear_down() can free its objects. hvd does not use
     * the device again. */
    assert_int_equal(cuda_enter(s.d, &visit, &again), -EFAULT);
    tear_down(&s);
}

static void test_capture(void **state)
{
    struct setup s;
    struct err err = {0};
    unsigned status = 0;
    assert_int_equal(set_up(&s, 0, &err), 0);
    assert_int_equal(cuda_stream_usable(s.d, s.stream, &err), 0);
    assert_int_equal(cuda_stream_usable(s.d, NULL, &err), 0);
    fake->capture(s.stream, 1);
    assert_int_equal(cuda_stream_usable(s.d, s.stream, &err), -EBUSY);
    assert_non_null(strstr(err.msg, "CUDA graph"));
    /* hvd's allocation does not invalidate the capture. */
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, 100, &err), 0);
    assert_int_equal(s.d->api->stream_capturing(s.stream, &status), 0);
    assert_int_equal(status, 1);
    /* Without cuda_enter(), which sets the relaxed capture mode, the allocation fails. */
    cuda_leave(&s.visit);
    struct cuda_memory careless = {0};
    assert_int_equal(s.d->api->context_push(s.d->context), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &careless, 100, &err), -EBUSY);
    struct CUctx_st *popped;
    assert_int_equal(s.d->api->context_pop(&popped), 0);
    fake->capture(s.stream, 0);
    assert_int_equal(cuda_enter(s.d, &s.visit, &err), 0);
    tear_down(&s);
    assert_int_equal(fake->live(), 0);
}

static void test_pointers(void **state)
{
    struct setup s;
    struct err err = {0};
    int device = 7, local;
    assert_int_equal(set_up(&s, 1, &err), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &s.host, 100, &err), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, 100, &err), 0);
    assert_int_equal(cuda_pointer_device(s.d->api, (char *)s.scratch.at + 99, &device, &err), 0);
    assert_int_equal(device, 1);
    assert_int_equal(cuda_pointer_device(s.d->api, s.host.at, &device, &err), 0);
    assert_int_equal(device, -1);
    assert_int_equal(cuda_pointer_device(s.d->api, &local, &device, &err), 0);
    assert_int_equal(device, -1);
    tear_down(&s);
}

static void test_memory(void **state)
{
    struct setup s;
    struct err err = {0};
    assert_int_equal(set_up(&s, 0, &err), 0);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, 1000, &err), 0);
    void *at = s.scratch.at;
    assert_true(s.scratch.size >= 1000);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, s.scratch.size, &err), 0);
    assert_ptr_equal(s.scratch.at, at);
    /* If there is no memory for growth, exactly the requested size is enough. */
    fake->fail_call(0, CUDA_OUT_OF_MEMORY);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, 100000, &err), 0);
    assert_int_equal(s.scratch.size, 100000);
    assert_int_equal(cuda_memory_reserve(s.d, &s.scratch, SIZE_MAX / 2, &err), -ENOMEM);
    assert_non_null(strstr(err.msg, "9223372036854775807 bytes of the device's memory: GPU 0"));
    assert_null(s.scratch.at);
    assert_int_equal(s.scratch.size, 0);
    tear_down(&s);
    assert_int_equal(fake->live(), 0);
}

/* The error when the kernels cannot be loaded. */
static void test_no_kernels(void **state)
{
    static const struct {
        const char *file, *script;
        int rc;
        const char *words;
    } table[] = {
        {"/nonexistent/kernels", "", -ENOENT, "/nonexistent/kernels of HVD_KERNELS"},
        {"/proc/self", "", -EINVAL, "is not a file of kernels"},
        {NULL, "cuModuleLoadData=222;version=12040", -ENOTSUP, "cuda-driver-version"},
        {NULL, "cuModuleLoadData=209", -ENOTSUP, "gpu-arch-support"},
        {NULL, "cuModuleGetFunction=500", -ENOENT, "of another version of hvd"},
    };
    const char *file = getenv("HVD_KERNELS");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct setup s;
        struct err err = {0};
        assert_int_equal(set_up(&s, 0, &err), 0);
        int version = s.d->api->version;
        if (table[i].file)
            setenv("HVD_KERNELS", table[i].file, 1);
        setenv("FAKE_CUDA", table[i].script, 1);
        struct cuda_api old = *s.d->api;
        if (strstr(table[i].script, "version"))
            old.version = 12040; /* the version was read once, when the driver was opened */
        s.d->api = &old;
        int rc = cuda_kernels_load(s.d, &err);
        unsetenv("FAKE_CUDA");
        setenv("HVD_KERNELS", file, 1);
        if (rc != table[i].rc || !strstr(err.msg, table[i].words))
            fail_msg("%s: %d \"%s\"", table[i].words, rc, err.msg);
        assert_int_equal(version, 13000);
        tear_down(&s);
        assert_int_equal(fake->live(), 0);
    }
}

/* The file of kernels lies beside the library, or here beside this program. */
static void test_path(void **state)
{
    char path[PATH_MAX], file[PATH_MAX];
    struct err err = {0};
    snprintf(file, sizeof(file), "%s", getenv("HVD_KERNELS"));
    assert_int_equal(cuda_kernels_path(path, sizeof(path), &err), 0);
    assert_string_equal(path, file);
    unsetenv("HVD_KERNELS");
    assert_int_equal(cuda_kernels_path(path, sizeof(path), &err), -ENOENT);
    assert_non_null(strstr(err.msg, "tests/unit/backend/hvd_kernels.fatbin (make builds it"));
    assert_int_equal(cuda_kernels_path(path, 10, &err), -ENAMETOOLONG);
    setenv("HVD_KERNELS", file, 1);
}

static int life(int ordinal, struct err *err)
{
    struct setup s;
    int rc = set_up(&s, ordinal, err);
    if (rc == 0)
        rc = round_trip(&s, err);
    if (s.d)
        tear_down(&s);
    return rc;
}

/* Each call of the driver fails in turn, in two ways: the error has the name of the CUDA error,
 * and nothing leaks. */
static void test_every_call(void **state)
{
    static const struct {
        unsigned code;
        const char *name;
    } ways[] = {{CUDA_OUT_OF_MEMORY, "OUT_OF_MEMORY"}, {CUDA_LAUNCH_FAILED, "LAUNCH_FAILED"}};
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        int told = 0, rc;
        for (long n = 0;; n++) {
            struct err err = {0};
            long before = fake->live();
            fake->fail_call(n, ways[w].code);
            rc = life(0, &err);
            bool reached = fake->failed();
            fake->fail_call(-1, 0);
            if (!reached)
                break;
            if (rc < 0 && !strstr(err.msg, ways[w].name))
                fail_msg("call %ld fails with %u: \"%s\"", n, ways[w].code, err.msg);
            /* If the round trip succeeded, the failed call was one of closing, which may then
             * leave objects. */
            if (ways[w].code == CUDA_OUT_OF_MEMORY && rc < 0)
                assert_int_equal(fake->live(), before);
            told += rc < 0;
            assert_true(n < 1000);
        }
        assert_int_equal(rc, 0);
        assert_true(told > 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device),  cmocka_unit_test(test_steady),
        cmocka_unit_test(test_asks),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_capture), cmocka_unit_test(test_pointers),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_no_kernels),
        cmocka_unit_test(test_path),    cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_sticks),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("FAKE_CUDA");
    fake = fake_cuda_use("cuda");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
