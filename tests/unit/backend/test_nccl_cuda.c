/* SPDX-License-Identifier: Apache-2.0
 *
 * The fakes of NCCL and of CUDA's driver in one process (tests/fake): work that NCCL launches on a
 * stream runs in the stream's order, after the events for which the stream waits. On a broken
 * device it does not run, and the communicator can still be aborted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/gpu.h"
#include "core/backend/nccl_api.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/nccl_rank.h"

#define N 1000

static const struct fake_cuda_control *fake;

struct setup {
    struct nccl_api nccl;
    struct ncclComm *comm;
    struct gpu *gpu;
    struct cuda_visit visit;
    struct CUstream_st *user;
    struct CUevent_st *event;
    struct cuda_memory memory, locked;
};

static void set_up(struct setup *s, const char *version)
{
    struct nccl_place place = {.origin = NCCL_ASKED};
    struct nccl_abi_id id;
    struct nccl_abi_config config = {.size = sizeof(config),
                                     .magic = NCCL_ABI_MAGIC,
                                     .version = NCCL_ABI_CONFIG_VERSION,
                                     .blocking = 1};
    struct err err = {0};
    *s = (struct setup){.locked.host = true};
    fake_nccl_path(version, place.path);
    assert_int_equal(nccl_api_open(&place, &s->nccl, &err), 0);
    assert_int_equal(gpu_open(0, &s->gpu, &err), 0);
    struct cuda_device *d = s->gpu->device;
    assert_int_equal(cuda_enter(d, &s->visit, &err), 0);
    assert_int_equal(cuda_stream_create(d, &s->user, &err), 0);
    assert_int_equal(cuda_event_get(d, &s->event, &err), 0);
    assert_int_equal(cuda_memory_reserve(d, &s->memory, 4 * N * sizeof(float), &err), 0);
    assert_int_equal(cuda_memory_reserve(d, &s->locked, 2 * N * sizeof(float), &err), 0);
    assert_int_equal(s->nccl.ncclGetUniqueId(&id), NCCL_ABI_SUCCESS);
    assert_int_equal(s->nccl.ncclCommInitRankConfig(&s->comm, 1, id, 0, &config), NCCL_ABI_SUCCESS);
}

static void tear_down(struct setup *s)
{
    struct cuda_device *d = s->gpu->device;
    cuda_memory_free(d, &s->memory);
    cuda_memory_free(d, &s->locked);
    cuda_event_put(d, s->event);
    cuda_stream_destroy(d, s->user);
    cuda_leave(&s->visit);
    gpu_close(s->gpu);
}

static int finish(struct setup *s)
{
    uint64_t deadline = deadline_in_ms(10000);
    int rc = cuda_event_record(s->gpu->device, s->event, s->gpu->stream, NULL);
    while (rc == 0 && (rc = cuda_event_done(s->gpu->device, s->event, NULL)) == 1) {
        if (deadline_passed(deadline))
            return -ETIMEDOUT;
        usleep(100);
        rc = 0;
    }
    return rc;
}

/* The user's stream fills a buffer; the communicator's stream copies, sums and copies it back.
 * All of them are slow. */
static void test_order(void **state)
{
    static const char *const versions[] = {"2.14", "2.27"};
    for (size_t v = 0; v < 2; v++) {
        struct setup s;
        struct err err = {0};
        set_up(&s, versions[v]);
        struct cuda_device *d = s.gpu->device;
        float *a = s.memory.at, *b = a + N, *c = b + N, *e = c + N, *host = s.locked.at;
        fake->delay(3000);
        for (int round = 1; round <= 4; round++) {
            for (int i = 0; i < N; i++)
                host[i] = (float)(round * i);
            memset(host + N, 0xee, N * sizeof(float));
            size_t bytes = N * sizeof(float);
            assert_int_equal(cuda_copy(d, CUDA_COPY_IN, a, host, bytes, s.user, &err), 0);
            assert_int_equal(cuda_event_record(d, s.event, s.user, &err), 0);
            assert_int_equal(cuda_stream_wait(d, s.gpu->stream, s.event, &err), 0);
            assert_int_equal(cuda_copy(d, CUDA_COPY_INSIDE, b, a, bytes, s.gpu->stream, &err), 0);
            assert_int_equal(s.nccl.ncclAllReduce(b, c, N, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, s.comm,
                                                  s.gpu->stream),
                             NCCL_ABI_SUCCESS);
            assert_int_equal(cuda_copy(d, CUDA_COPY_INSIDE, e, c, bytes, s.gpu->stream, &err), 0);
            assert_int_equal(cuda_copy(d, CUDA_COPY_OUT, host + N, e, bytes, s.gpu->stream, &err),
                             0);
            assert_int_equal(finish(&s), 0);
            assert_memory_equal(host, host + N, bytes);
        }
        fake->delay(0);
        assert_int_equal(s.nccl.ncclCommAbort(s.comm), NCCL_ABI_SUCCESS);
        tear_down(&s);
        assert_int_equal(fake->live(), 0);
    }
}

static void test_broken(void **state)
{
    struct setup s;
    struct err err = {0};
    set_up(&s, "2.14");
    struct cuda_device *d = s.gpu->device;
    float *a = s.memory.at;
    fake->break_device(0, CUDA_ILLEGAL_ADDRESS);
    assert_int_equal(cuda_copy(d, CUDA_COPY_INSIDE, a + N, a, 8, s.gpu->stream, &err), 0);
    memset(a, 0, 8);
    memset(a + N, 1, 8);
    assert_int_equal(
        s.nccl.ncclAllReduce(a + N, a, 2, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, s.comm, s.gpu->stream),
        NCCL_ABI_SUCCESS);
    alarm(20); /* ends the test if the abort waits for work that never runs */
    assert_int_equal(s.nccl.ncclCommAbort(s.comm), NCCL_ABI_SUCCESS);
    alarm(0);
    assert_int_equal(finish(&s), -EFAULT);
    assert_int_equal(a[0], 0);
    fake->mend(0);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_broken),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("FAKE_CUDA");
    fake = fake_cuda_use("cuda");
    return cmocka_run_group_tests_name("unit/backend/nccl_cuda", tests, NULL, NULL);
}
