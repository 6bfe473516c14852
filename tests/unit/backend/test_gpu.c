/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu: a rank's GPU (core/backend/gpu) on the fake driver: opened with and without kernels,
 * copies that block, inputs for which its stream waits, the memory that communicators of NCCL's
 * take, and each call of the driver failing in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/gpu.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"

static const struct fake_cuda_control *fake;

static int wait_for(struct gpu *gpu, struct CUevent_st *event)
{
    uint64_t deadline = deadline_in_ms(10000);
    int rc;
    while ((rc = cuda_event_done(gpu->device, event, NULL)) == 1 && !deadline_passed(deadline))
        usleep(100);
    return rc;
}

static void test_open(void **state)
{
    struct gpu *gpu = NULL;
    struct err err = {0};
    assert_int_equal(gpu_open(1, &gpu, &err), 0);
    assert_true(gpu->kernels);
    assert_string_equal(gpu->no_kernels.msg, "");
    assert_int_equal(gpu->device->ordinal, 1);
    gpu_close(gpu);
    setenv("FAKE_CUDA", "cuModuleLoadData=209", 1);
    assert_int_equal(gpu_open(0, &gpu, &err), 0);
    unsetenv("FAKE_CUDA");
    assert_false(gpu->kernels);
    assert_non_null(strstr(gpu->no_kernels.msg, "gpu-arch-support"));
    gpu_close(gpu);
    assert_int_equal(gpu_open(2, &gpu, &err), -ENODEV);
    gpu_close(NULL);
    assert_int_equal(fake->live(), 0);
}

static void test_copy(void **state)
{
    struct gpu *gpu = NULL;
    struct err err = {0};
    struct cuda_visit visit = {0};
    struct cuda_memory memory = {0};
    assert_int_equal(gpu_open(0, &gpu, &err), 0);
    assert_int_equal(cuda_enter(gpu->device, &visit, &err), 0);
    assert_int_equal(cuda_memory_reserve(gpu->device, &memory, 2000, &err), 0);
    uint8_t *at = memory.at; /* the fake's device memory is the host's */
    fake->delay(2000);
    for (int i = 1; i < 5; i++) {
        memset(at, i, 1000);
        assert_int_equal(gpu_copy_now(gpu, at + 1000, at, 1000, &err), 0);
        assert_memory_equal(at + 1000, at, 1000);
    }
    fake->delay(0);
    assert_int_equal(gpu_copy_now(gpu, at + 1000, at, 0, &err), 0);
    cuda_memory_free(gpu->device, &memory);
    cuda_leave(&visit);
    gpu_close(gpu);
    assert_int_equal(fake->live(), 0);
}

/* The user's tensors are on two slow streams; one tensor has no event. */
static void test_await(void **state)
{
    struct gpu *gpu = NULL;
    struct err err = {0};
    struct cuda_visit visit = {0};
    struct cuda_memory memory = {0};
    struct CUstream_st *users[2];
    struct CUevent_st *ready[2], *done;
    assert_int_equal(gpu_open(0, &gpu, &err), 0);
    struct cuda_device *d = gpu->device;
    assert_int_equal(cuda_enter(d, &visit, &err), 0);
    assert_int_equal(cuda_memory_reserve(d, &memory, 48, &err), 0);
    uint8_t *at = memory.at;
    memset(at, 0, 48);
    memset(at, 7, 8);
    fake->delay(5000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuda_stream_create(d, &users[i], &err), 0);
        assert_int_equal(cuda_event_get(d, &ready[i], &err), 0);
        for (int k = 0; k < 4; k++) /* the copy below must see the last of these */
            assert_int_equal(cuda_copy(d, CUDA_COPY_INSIDE, at + 8 + 8 * i, k < 3 ? at + 40 : at, 8,
                                       users[i], &err),
                             0);
        assert_int_equal(cuda_event_record(d, ready[i], users[i], &err), 0);
    }
    void *const events[] = {ready[0], ready[0], NULL, ready[1]};
    const struct coll_op op = {.n = 4, .ready = events}, none = {.n = 4};
    assert_int_equal(gpu_await(gpu, gpu->stream, &none, &err), 0);
    long waits = fake->calls("cuStreamWaitEvent");
    assert_int_equal(gpu_await(gpu, gpu->stream, &op, &err), 0);
    assert_int_equal(fake->calls("cuStreamWaitEvent"), waits + 2);
    assert_int_equal(cuda_event_get(d, &done, &err), 0);
    assert_int_equal(cuda_copy(d, CUDA_COPY_INSIDE, at + 24, at + 8, 16, gpu->stream, &err), 0);
    assert_int_equal(cuda_event_record(d, done, gpu->stream, &err), 0);
    assert_int_equal(wait_for(gpu, done), 0);
    fake->delay(0);
    for (int i = 24; i < 40; i++)
        assert_int_equal(at[i], 7);
    for (int i = 0; i < 2; i++) {
        cuda_event_put(d, ready[i]);
        cuda_stream_destroy(d, users[i]);
    }
    cuda_event_put(d, done);
    cuda_memory_free(d, &memory);
    cuda_leave(&visit);
    gpu_close(gpu);
    assert_int_equal(fake->live(), 0);
}

/* ---- the memory of communicators ------------------------------------------------------------- */

#define MIB ((size_t)1 << 20)

/* What NCCL allocates. */
static void take(struct gpu *gpu, size_t bytes, cuda_address *ret)
{
    assert_int_equal(gpu->device->api->mem_alloc(ret, bytes), CUDA_OK);
}

static void explained(struct gpu *gpu, const struct gpu_room_part *part, int code, const char *text,
                      const char *want)
{
    struct err err;
    err_set(&err, code, "%s", text);
    gpu_room_explain(gpu, part, &err);
    assert_int_equal(err.code, -code);
    assert_string_equal(err.msg, want);
}

static void check_explain(struct gpu *gpu)
{
    static const char numbers[] =
        "GPU 0 has 3.0 MiB of 16.0 MiB of memory left, and this rank has 2 "
        "communicators there (the largest so far took 5.0 MiB)";
    const struct gpu_room_part enough = {.state = GPU_ROOM_MAKING},
                               little = {.state = GPU_ROOM_MAKING, .little = true},
                               ready = {.state = GPU_ROOM_READY, .little = true};
    char want[512];
    explained(gpu, &enough, EIO, "unhandled cuda error", "unhandled cuda error");
    explained(gpu, &ready, EIO, "unhandled cuda error", "unhandled cuda error");
    explained(gpu, &little, ETIMEDOUT, "it did not end", "it did not end");
    snprintf(want, sizeof(want), "unhandled cuda error: %s", numbers);
    explained(gpu, &little, EIO, "unhandled cuda error", want);
    snprintf(want, sizeof(want), "Cuda failure 2 'out of memory': %s", numbers);
    explained(gpu, &ready, EIO, "Cuda failure 2 'out of memory'", want);
    snprintf(want, sizeof(want), "Failed to CUDA calloc async 2432 bytes: %s", numbers);
    explained(gpu, &enough, EIO, "Failed to CUDA calloc async 2432 bytes", want);
    gpu_room_explain(gpu, &little, NULL);
}

/* The largest is kept. Two that are made at a time are not measured. */
static void test_room(void **state)
{
    struct gpu *gpu = NULL;
    struct cuda_visit visit = {0};
    struct gpu_room_part part[5] = {{0}};
    cuda_address at[4];
    setenv("FAKE_CUDA", "memory=16777216", 1);
    assert_int_equal(gpu_open(0, &gpu, NULL), 0);
    assert_int_equal(cuda_enter(gpu->device, &visit, NULL), 0);
    const struct gpu_room *r = &gpu->room;
    gpu_room_begin(gpu, &part[0]);
    assert_true(part[0].left == 16 * MIB && !part[0].little);
    take(gpu, 5 * MIB, &at[0]);
    gpu_room_made(gpu, &part[0]);
    assert_true(r->most == 5 * MIB && r->left == 11 * MIB && r->total == 16 * MIB);
    gpu_room_begin(gpu, &part[1]);
    take(gpu, MIB, &at[1]);
    gpu_room_made(gpu, &part[1]);
    assert_true(r->most == 5 * MIB && r->left == 10 * MIB && !gpu_room_is_little(r));
    gpu_room_begin(gpu, &part[2]);
    gpu_room_begin(gpu, &part[3]);
    take(gpu, 6 * MIB, &at[2]);
    gpu_room_made(gpu, &part[3]);
    gpu_room_made(gpu, &part[2]);
    assert_true(r->communicators == 4 && r->most == 5 * MIB && r->left == 4 * MIB);
    gpu_room_begin(gpu, &part[4]);
    assert_true(part[4].little && r->making == 1);
    take(gpu, MIB, &at[3]);
    gpu_room_ended(gpu, &part[4]);
    for (int i = 0; i < 4; i++)
        gpu_room_ended(gpu, &part[i / 2]); /* each of two twice */
    assert_true(r->communicators == 2 && r->making == 0);
    check_explain(gpu);
    setenv("FAKE_CUDA", "cuMemGetInfo_v2=2", 1);
    explained(gpu, &part[2], EIO, "out of memory", "out of memory");
    assert_true(r->total == 0 && !gpu_room_is_little(r));
    setenv("FAKE_CUDA", "memory=16777216", 1);
    for (int i = 0; i < 4; i++)
        gpu->device->api->mem_free(at[i]);
    cuda_leave(&visit);
    gpu_close(gpu);
    unsetenv("FAKE_CUDA");
    assert_int_equal(fake->live(), 0);
}

/* Opens a GPU, uses every function, and closes it. memory was allocated before. */
static int life(const struct cuda_memory *memory, struct err *err)
{
    struct gpu *gpu = NULL;
    uint8_t *at = memory->at;
    int rc = gpu_open(0, &gpu, err);
    if (rc == 0)
        rc = gpu_copy_now(gpu, at, at + 8, 8, err);
    if (rc == 0 && !gpu->kernels && !gpu->no_kernels.msg[0])
        rc = err_set(err, EBADMSG, "no kernels, and no word of them");
    gpu_close(gpu);
    return rc;
}

static void test_every_call(void **state)
{
    static const unsigned ways[] = {CUDA_OUT_OF_MEMORY, CUDA_LAUNCH_FAILED};
    struct gpu *holder = NULL;
    struct cuda_visit visit = {0};
    struct cuda_memory memory = {0};
    assert_int_equal(gpu_open(0, &holder, NULL), 0);
    assert_int_equal(cuda_enter(holder->device, &visit, NULL), 0);
    assert_int_equal(cuda_memory_reserve(holder->device, &memory, 16, NULL), 0);
    for (size_t w = 0; w < 2; w++) {
        int told = 0, rc = -1;
        bool reached = true;
        for (long n = 0; reached; n++) {
            struct err err = {0};
            long before = fake->live();
            fake->fail_call(n, ways[w]);
            rc = life(&memory, &err);
            reached = fake->failed();
            fake->fail_call(-1, 0);
            if (rc < 0 && !strstr(err.msg, w == 0 ? "OUT_OF_MEMORY" : "LAUNCH_FAILED"))
                fail_msg("call %ld fails with %u: %d \"%s\"", n, ways[w], rc, err.msg);
            if (w == 0 && rc < 0)
                assert_int_equal(fake->live(), before);
            told += rc < 0;
            assert_true(n < 1000);
        }
        assert_int_equal(rc, 0);
        assert_true(told >= 10);
    }
    cuda_memory_free(holder->device, &memory);
    cuda_leave(&visit);
    gpu_close(holder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),       cmocka_unit_test(test_copy),
        cmocka_unit_test(test_await),      cmocka_unit_test(test_room),
        cmocka_unit_test(test_every_call),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("FAKE_CUDA");
    fake = fake_cuda_use("cuda");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
