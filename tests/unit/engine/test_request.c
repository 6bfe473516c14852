/* SPDX-License-Identifier: Apache-2.0
 *
 * request: the facts that follow from a request, refused requests and their messages, names of
 * hvd.h.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/request.h"

static char memory[4096];
static const int64_t shape[3] = {7, 2, 3};

static struct hvd_request request(enum hvd_kind kind)
{
    struct hvd_request r = {.kind = kind,
                            .input = memory,
                            .output = memory + 2048,
                            .dtype = HVD_FLOAT32,
                            .ndim = 3,
                            .shape = shape,
                            .op = HVD_SUM,
                            .device = -1};
    if (kind == HVD_ALLGATHER || kind == HVD_ALLTOALL)
        r.output = NULL;
    return r;
}

static int check(const struct hvd_request *r, struct request_facts *f, struct err *err)
{
    return request_check(r, "t", 1, 3, f, err);
}

static void test_facts(void **state)
{
    struct request_facts f;
    struct err err = {0};
    struct hvd_request r = request(HVD_ALLREDUCE);
    r.postscale = 0.5;
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.count, 42);
    assert_int_equal(f.inner, 6);
    assert_int_equal(f.out_count, 42);
    assert_true(f.sig.prescale == 1.0 && f.sig.postscale == 0.5);
    assert_int_equal(f.sig.ndim, 3);
    assert_int_equal(f.sig.shape[2], 3);
    assert_int_equal(f.sig.shape[3], 0);
    r = request(HVD_REDUCESCATTER);
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.out_count, 2 * 6); /* rank 1 of 3 gets 2 of 7 rows */
    r = request(HVD_ALLGATHER);
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.out_count, 0);
    r = request(HVD_BROADCAST);
    r.input = NULL; /* only the root reads it */
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.sig.root, 0);
    r.root = 1;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r = (struct hvd_request){.kind = HVD_BARRIER, .ndim = 99, .dtype = (enum hvd_dtype)99};
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.count, 0);
}

static void test_scalars_and_nothing(void **state)
{
    struct request_facts f;
    struct err err = {0};
    int64_t none[2] = {5, 0};
    struct hvd_request r = request(HVD_ALLREDUCE);
    r.ndim = 0;
    r.shape = NULL;
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.count, 1);
    r = request(HVD_ALLREDUCE);
    r.ndim = 2;
    r.shape = none;
    r.input = NULL;
    r.output = NULL;
    assert_int_equal(check(&r, &f, &err), 0);
    assert_int_equal(f.count, 0);
}

static void test_overlap(void **state)
{
    struct request_facts f;
    struct err err = {0};
    struct hvd_request r = request(HVD_ALLREDUCE);
    r.output = memory;
    assert_int_equal(check(&r, &f, &err), 0);
    r.output = memory + 42 * 4;
    assert_int_equal(check(&r, &f, &err), 0);
    r.output = memory + 42 * 4 - 1;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r.output = memory;
    r.input = memory + 1;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "t: input and output overlap"));
}

static void test_splits(void **state)
{
    struct request_facts f;
    struct err err = {0};
    int64_t good[3] = {0, 7, 0}, less[3] = {1, 2, 3}, more[3] = {7, 7, 7}, minus[3] = {8, -1, 0};
    int64_t wrap[3] = {INT64_MAX, INT64_MAX, 9};
    struct hvd_request r = request(HVD_ALLTOALL);
    assert_int_equal(check(&r, &f, &err), -EINVAL); /* 7 rows for 3 ranks */
    assert_non_null(strstr(err.msg, "give splits"));
    r.splits = good;
    assert_int_equal(check(&r, &f, &err), 0);
    const int64_t *const bad[] = {less, more, minus, wrap};
    for (int i = 0; i < 4; i++) {
        r.splits = bad[i];
        assert_int_equal(check(&r, &f, &err), -EINVAL);
    }
}

static void test_refused(void **state)
{
    struct request_facts f = {.count = 77};
    struct err err = {0};
    int64_t huge[2] = {INT64_MAX, 2}, large[1] = {INT64_MAX / 4};
    struct hvd_request r = request(HVD_ALLREDUCE);
    r.shape = huge;
    r.ndim = 2;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r.shape = large;
    r.ndim = 1;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r = request(HVD_ALLREDUCE);
    r.prescale = NAN;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r = request(HVD_ALLREDUCE);
    r.dtype = HVD_BOOL;
    r.postscale = 2;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    r = request(HVD_ALLREDUCE); /* of floats */
    r.op = HVD_BXOR;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    assert_string_equal(err.msg, "t: there is no bxor of float32");
    r.dtype = HVD_INT32;
    r.prescale = 3;
    assert_int_equal(check(&r, &f, &err), -EINVAL);
    assert_string_equal(err.msg, "t: bxor of int32 cannot be scaled");
    r = request(HVD_REDUCESCATTER);
    r.op = HVD_ADASUM;
    assert_int_equal(check(&r, &f, &err), -ENOTSUP);
    assert_int_equal(f.count, 77); /* a refused request does not change f */
}

static void test_rows(void **state)
{
    for (int64_t rows = 0; rows < 50; rows++) {
        for (int size = 1; size < 9; size++) {
            int64_t sum = 0;
            for (int r = 0; r < size; r++)
                sum += request_rows(rows, r, size);
            assert_int_equal(sum, rows);
            assert_true(request_rows(rows, 0, size) - request_rows(rows, size - 1, size) <= 1);
        }
    }
}

static void test_words(void **state)
{
    for (int i = 0; i < HVD_DTYPES; i++) {
        assert_true(hvd_dtype_size((enum hvd_dtype)i) > 0);
        assert_null(strstr(hvd_dtype_name((enum hvd_dtype)i), "unknown"));
    }
    for (int i = 0; i < HVD_OPS; i++)
        assert_null(strstr(hvd_op_name((enum hvd_op)i), "unknown"));
    for (int i = 0; i < HVD_KINDS; i++)
        assert_null(strstr(hvd_kind_name((enum hvd_kind)i), "unknown"));
    assert_int_equal(hvd_dtype_size(HVD_DTYPES), 0);
    assert_string_equal(hvd_op_name(HVD_OPS), "unknown op");
    assert_string_equal(hvd_kind_name((enum hvd_kind) - 1), "unknown kind");
    assert_string_equal(hvd_version(), HVD_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),   cmocka_unit_test(test_scalars_and_nothing),
        cmocka_unit_test(test_overlap), cmocka_unit_test(test_splits),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
