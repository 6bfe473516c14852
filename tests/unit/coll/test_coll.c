/* SPDX-License-Identifier: Apache-2.0
 *
 * coll in a world of one, and the requests that coll_start() refuses. For larger worlds see
 * tests/multi/test_coll*.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/coll/coll.h"

static int zero[] = {0}, one[] = {1};

static struct mesh world_of_one(void)
{
    return (struct mesh){.size = 1,
                         .local_size = 1,
                         .hosts = 1,
                         .host_of = zero,
                         .local_of = zero,
                         .local_size_of = one,
                         .lanes = 1};
}

static struct coll_op op_of(enum hvd_kind kind, enum hvd_dtype dtype, enum hvd_op op,
                            const struct coll_tensor *t, size_t n)
{
    return (struct coll_op){.kind = kind,
                            .dtype = dtype,
                            .op = op,
                            .prescale = 1.0,
                            .postscale = 1.0,
                            .contributors = 1,
                            .device = -1,
                            .tensors = t,
                            .n = n};
}

static void run(struct coll *coll, const struct coll_op *op)
{
    struct err err = {0};
    assert_int_equal(coll_start(coll, op, &err), 0);
    assert_int_equal(coll_progress(coll), 0);
    assert_string_equal(coll_algorithm(coll), "alone");
}

static int setup(void **state)
{
    static struct mesh mesh;
    mesh = world_of_one();
    return coll_create(&mesh, (struct coll **)state, NULL);
}

static int teardown(void **state)
{
    coll_destroy(*state);
    return 0;
}

static void test_alone_copies_and_scales(void **state)
{
    float in[] = {1, 2, 3}, out[] = {0, 0, 0};
    struct coll_tensor t = {in, out, 3};
    struct coll_op op = op_of(HVD_ALLREDUCE, HVD_FLOAT32, HVD_AVERAGE, &t, 1);
    run(*state, &op);
    assert_memory_equal(in, out, sizeof(in));
    op.prescale = 2;
    op.postscale = 0.25;
    op.contributors = 2;
    run(*state, &op);
    assert_true(out[0] == 0.25f && out[1] == 0.5f && out[2] == 0.75f);
    t.out = in;
    run(*state, &op);
    assert_memory_equal(in, out, sizeof(in));
}

static void test_alone_every_kind(void **state)
{
    int32_t in[] = {4, 5, 6}, out[3] = {0};
    const size_t parts[] = {3};
    struct coll_tensor t = {in, out, 3};
    const enum hvd_kind kinds[] = {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER};
    for (size_t i = 0; i < 4; i++) {
        struct coll_op op = op_of(kinds[i], HVD_INT32, HVD_SUM, &t, 1);
        op.send_counts = op.recv_counts = parts;
        memset(out, 0, sizeof(out));
        run(*state, &op);
        assert_memory_equal(in, out, sizeof(in));
    }
    struct coll_op barrier = op_of(HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
    run(*state, &barrier);
}

static void test_alone_nothing(void **state)
{
    struct coll_tensor t = {NULL, NULL, 0};
    struct coll_op op = op_of(HVD_ALLREDUCE, HVD_FLOAT64, HVD_SUM, &t, 1);
    run(*state, &op);
    op.n = 0;
    run(*state, &op);
}

static void test_refused(void **state)
{
    uint8_t in[4] = {0}, out[4] = {9, 9, 9, 9};
    const size_t three[] = {3}, four[] = {4};
    struct coll_tensor t = {in, out, 4};
    struct err err = {0};

    struct coll_op op = op_of(HVD_KINDS, HVD_UINT8, HVD_SUM, &t, 1);
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    op = op_of(HVD_ALLREDUCE, HVD_DTYPES, HVD_SUM, &t, 1);
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    op = op_of(HVD_ALLREDUCE, HVD_FLOAT8_E4M3FN, HVD_SUM, &t, 1);
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    assert_string_equal(err_text(&err), "no allreduce of float8_e4m3fn");
    op = op_of(HVD_BROADCAST, HVD_UINT8, HVD_SUM, &t, 1);
    op.root = 1;
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    assert_string_equal(err_text(&err), "broadcast: no rank 1 in a world of 1");
    op = op_of(HVD_ALLGATHER, HVD_UINT8, HVD_SUM, &t, 1);
    op.recv_counts = three;
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    assert_string_equal(err_text(&err), "allgather: the tensor has 4 elements, its parts 3");
    op = op_of(HVD_ALLTOALL, HVD_UINT8, HVD_SUM, &t, 1);
    op.send_counts = four;
    op.recv_counts = three;
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    op.recv_counts = four;
    t.out = in;
    assert_int_equal(coll_start(*state, &op, &err), -EINVAL);
    assert_int_equal(out[0], 9);
}

static void test_one_at_a_time(void **state)
{
    uint8_t byte = 1;
    struct coll_tensor t = {&byte, &byte, 1};
    struct coll_op op = op_of(HVD_ALLREDUCE, HVD_UINT8, HVD_SUM, &t, 1);
    assert_int_equal(coll_start(*state, &op, NULL), 0);
    assert_int_equal(coll_start(*state, &op, NULL), -EBUSY);
    coll_cancel(*state);
    run(*state, &op);
    assert_int_equal(coll_progress(*state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alone_copies_and_scales, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alone_every_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alone_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
    };
    return cmocka_run_group_tests_name("unit/coll/coll", tests, NULL, NULL);
}
