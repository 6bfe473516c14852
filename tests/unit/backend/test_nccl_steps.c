/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_steps: the types, operators and calls of NCCL that an operation becomes, with each version
 * of NCCL, with and without kernels; and the errors of refused operations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "core/backend/nccl_abi.h"
#include "core/backend/nccl_steps.h"
#include "core/coll/reduce.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define RANKS    3

/* cuda: the CUDA version that NCCL was built for. */
static struct nccl_means means(int cuda, bool kernels)
{
    return (struct nccl_means){.version = 21403, .cuda = cuda, .kernels = kernels};
}

static struct coll_op reduction(enum hvd_dtype dtype, enum hvd_op op, double pre, double post)
{
    return (struct coll_op){.kind = HVD_ALLREDUCE,
                            .dtype = dtype,
                            .op = op,
                            .prescale = pre,
                            .postscale = post,
                            .contributors = RANKS};
}

/* An operation, and the expected form. */
static const struct {
    enum hvd_dtype dtype;
    enum hvd_op op;
    double pre, post;
    int cuda;
    bool kernels;
    enum hvd_dtype as;
    int type, nccl_op;
    double factor, left_pre, left_post;
    int divisor;
    bool to_bool;
} forms[] = {
    {HVD_FLOAT32, HVD_SUM, 1, 1, 13000, false, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, 1, 1, 1,
     1, false},
    {HVD_FLOAT64, HVD_PRODUCT, 1, 1, 13000, false, HVD_FLOAT64, NCCL_ABI_FLOAT64, NCCL_ABI_PROD, 1,
     1, 1, 1, false},
    {HVD_INT8, HVD_MIN, 1, 1, 13000, false, HVD_INT8, NCCL_ABI_INT8, NCCL_ABI_MIN, 1, 1, 1, 1,
     false},
    {HVD_UINT8, HVD_MAX, 1, 1, 13000, false, HVD_UINT8, NCCL_ABI_UINT8, NCCL_ABI_MAX, 1, 1, 1, 1,
     false},
    {HVD_INT64, HVD_SUM, 1, 1, 13000, false, HVD_INT64, NCCL_ABI_INT64, NCCL_ABI_SUM, 1, 1, 1, 1,
     false},
    /* averages: hvd's kernels divide if they are there; otherwise NCCL's own average, or
     * with other factors PreMulSum's factor */
    {HVD_FLOAT32, HVD_AVERAGE, 1, 1, 13000, false, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_AVG, 1,
     1, 1, 1, false},
    {HVD_FLOAT16, HVD_AVERAGE, 1, 1, 13000, false, HVD_FLOAT16, NCCL_ABI_FLOAT16, NCCL_ABI_AVG, 1,
     1, 1, 1, false},
    {HVD_FLOAT32, HVD_AVERAGE, 1, 1, 13000, true, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, 1, 1,
     1, RANKS, false},
    {HVD_FLOAT32, HVD_AVERAGE, 0.5, 4, 13000, false, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM,
     2.0 / RANKS, 1, 1, 1, false},
    {HVD_FLOAT32, HVD_SUM, 0.5, 4, 13000, true, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, 1, 0.5,
     4, 1, false},
    {HVD_INT32, HVD_AVERAGE, 1, 1, 13000, true, HVD_INT32, NCCL_ABI_INT32, NCCL_ABI_SUM, 1, 1, 1,
     RANKS, false},
    {HVD_FLOAT32, HVD_MAX, 2, 1, 13000, true, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_MAX, 1, 2, 1,
     1, false},
    /* types that this NCCL lacks */
    {HVD_BFLOAT16, HVD_SUM, 1, 1, 13000, false, HVD_BFLOAT16, NCCL_ABI_BFLOAT16, NCCL_ABI_SUM, 1, 1,
     1, 1, false},
    {HVD_BFLOAT16, HVD_SUM, 1, 1, 10020, true, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, 1, 1, 1,
     1, false},
    /* a tensor that is converted is scaled by the conversion */
    {HVD_BFLOAT16, HVD_AVERAGE, 1, 1, 10020, true, HVD_FLOAT32, NCCL_ABI_FLOAT32, NCCL_ABI_SUM, 1,
     1, 1, RANKS, false},
    {HVD_INT16, HVD_SUM, 1, 1, 13000, true, HVD_INT32, NCCL_ABI_INT32, NCCL_ABI_SUM, 1, 1, 1, 1,
     false},
    {HVD_UINT16, HVD_MAX, 1, 1, 13000, true, HVD_INT32, NCCL_ABI_INT32, NCCL_ABI_MAX, 1, 1, 1, 1,
     false},
    {HVD_BOOL, HVD_SUM, 1, 1, 13000, true, HVD_BOOL, NCCL_ABI_UINT8, NCCL_ABI_MAX, 1, 1, 1, 1,
     true},
    {HVD_BOOL, HVD_MAX, 3, 3, 13000, true, HVD_BOOL, NCCL_ABI_UINT8, NCCL_ABI_MAX, 1, 1, 1, 1,
     true},
    {HVD_BOOL, HVD_PRODUCT, 1, 1, 13000, true, HVD_BOOL, NCCL_ABI_UINT8, NCCL_ABI_MIN, 1, 1, 1, 1,
     true},
    {HVD_BOOL, HVD_MIN, 1, 1, 13000, true, HVD_BOOL, NCCL_ABI_UINT8, NCCL_ABI_MIN, 1, 1, 1, 1,
     true},
};

static const struct {
    enum hvd_dtype dtype;
    enum hvd_op op;
    double pre, post;
    int cuda;
    bool kernels;
    const char *words;
} refused[] = {
    {HVD_INT32, HVD_SUM, 2, 1, 13000, false,
     "NCCL 2.14.3 cannot apply the factors (prescale, postscale, average) to int32 (sum)"},
    {HVD_INT32, HVD_AVERAGE, 1, 1, 13000, false, "int32 (average), and hvd's kernels"},
    {HVD_FLOAT32, HVD_MAX, 2, 1, 13000, false, "to float32 (max)"},
    {HVD_BFLOAT16, HVD_SUM, 1, 1, 10020, false, "NCCL 2.14.3 cannot reduce bfloat16"},
    {HVD_INT16, HVD_SUM, 1, 1, 13000, false, "cannot reduce int16"},
    {HVD_BOOL, HVD_SUM, 1, 1, 13000, false, "cannot reduce bool"},
    {HVD_BOOL, HVD_AVERAGE, 1, 1, 13000, true, "NCCL has no average of bool"},
    {HVD_FLOAT32, HVD_ADASUM, 1, 1, 13000, true, "adasum"},
};

static void test_forms(void **state)
{
    for (size_t i = 0; i < COUNT(forms); i++) {
        struct nccl_means m = means(forms[i].cuda, forms[i].kernels);
        struct coll_op op = reduction(forms[i].dtype, forms[i].op, forms[i].pre, forms[i].post);
        struct nccl_form f = {.divisor = 77};
        struct err err = {0};
        int rc = nccl_form_of(&m, &op, RANKS, &f, &err);
        if (rc != 0 || f.dtype != forms[i].as || f.type != forms[i].type ||
            f.op != forms[i].nccl_op || f.factor != forms[i].factor ||
            f.prescale != forms[i].left_pre || f.postscale != forms[i].left_post ||
            f.divisor != forms[i].divisor || f.to_bool != forms[i].to_bool)
            fail_msg("row %zu: dtype %d type %d op %d factor %f pre %f post %f divisor %d bool %d "
                     "%s",
                     i, f.dtype, f.type, f.op, f.factor, f.prescale, f.postscale, f.divisor,
                     f.to_bool, err.msg);
    }
}

/* An NCCL that was built for CUDA 10 has no bfloat16, whatever its version. */
static void test_old_cuda(void **state)
{
    static const int cudas[] = {10020, 11000, 0};
    for (size_t i = 0; i < COUNT(cudas); i++) {
        struct nccl_means m = means(cudas[i], true);
        struct coll_op op = reduction(HVD_BFLOAT16, HVD_SUM, 1, 1);
        struct nccl_form f = {0};
        assert_int_equal(nccl_form_of(&m, &op, RANKS, &f, NULL), 0);
        assert_int_equal(f.dtype, i == 0 ? HVD_FLOAT32 : HVD_BFLOAT16);
    }
}

/* An average of a 16-bit type over three ranks needs hvd's kernels, over four it does not. */
static void test_rough(void **state)
{
    static const struct {
        enum hvd_dtype dtype;
        enum hvd_op op;
        double prescale;
        int size;
        bool rough;
    } cases[] = {
        {HVD_BFLOAT16, HVD_AVERAGE, 1, 3, true}, {HVD_BFLOAT16, HVD_AVERAGE, 1, 4, false},
        {HVD_FLOAT16, HVD_AVERAGE, 1, 6, true},  {HVD_FLOAT32, HVD_AVERAGE, 1, 3, false},
        {HVD_FLOAT16, HVD_SUM, 1, 3, false},     {HVD_FLOAT16, HVD_SUM, 0.1, 4, true},
        {HVD_BFLOAT16, HVD_SUM, 0.25, 3, false}, {HVD_FLOAT16, HVD_MAX, 1, 3, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct nccl_means m = means(13000, false);
        struct nccl_form form;
        struct coll_tensor t = {.count = 1};
        struct coll_op op = {.kind = HVD_ALLREDUCE,
                             .dtype = cases[i].dtype,
                             .op = cases[i].op,
                             .prescale = cases[i].prescale,
                             .postscale = 1,
                             .contributors = cases[i].size,
                             .tensors = &t,
                             .n = 1};
        assert_int_equal(nccl_form_of(&m, &op, cases[i].size, &form, NULL), 0);
        if (nccl_form_is_rough(&form, cases[i].size) != cases[i].rough)
            fail_msg("case %zu", i);
    }
}

static void test_refused(void **state)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct nccl_means m = means(refused[i].cuda, refused[i].kernels);
        struct coll_op op =
            reduction(refused[i].dtype, refused[i].op, refused[i].pre, refused[i].post);
        struct nccl_form f = {.divisor = 77};
        struct err err = {0};
        int rc = nccl_form_of(&m, &op, RANKS, &f, &err);
        if (rc != -ENOTSUP || !strstr(err.msg, refused[i].words) || f.divisor != 77)
            fail_msg("row %zu: %d \"%s\"", i, rc, err.msg);
    }
}

/* Every dtype and operator has a form with kernels, or an error. */
static void test_every_form(void **state)
{
    for (int cuda = 10020; cuda <= 13000; cuda += 980) {
        for (int kernels = 0; kernels < 2; kernels++) {
            for (int d = 0; d < HVD_DTYPES; d++) {
                for (int o = 0; o < HVD_OPS; o++) {
                    struct nccl_means m = means(cuda, kernels);
                    struct coll_op op = reduction((enum hvd_dtype)d, (enum hvd_op)o, 1, 1);
                    struct nccl_form f = {.type = -1};
                    struct err err = {0};
                    int rc = nccl_form_of(&m, &op, RANKS, &f, &err);
                    bool bits = o == HVD_BAND || o == HVD_BOR || o == HVD_BXOR;
                    bool never = !reduce_possible((enum hvd_dtype)d, (enum hvd_op)o) ||
                                 (bits && (d != HVD_BOOL || o == HVD_BXOR));
                    if (rc == 0) {
                        assert_true(f.type >= 0 && f.op >= 0 && !never);
                        if (!kernels)
                            assert_true(f.dtype == op.dtype && f.prescale == 1 &&
                                        f.postscale == 1 && f.divisor == 1 && !f.to_bool);
                    } else {
                        assert_int_equal(rc, -ENOTSUP);
                        assert_true(never || !kernels);
                        assert_true(err.msg[0] != '\0');
                    }
                }
            }
        }
    }
}

static struct nccl_steps make(const struct coll_op *op, int rank)
{
    struct nccl_means m = means(13000, false);
    struct nccl_steps s = {0};
    struct err err = {0};
    if (nccl_steps_make(&m, op, rank, RANKS, &s, &err) != 0)
        fail_msg("%s", err.msg);
    return s;
}

static void test_fused(void **state)
{
    float a[8], b[8];
    const struct coll_tensor tensors[] = {{a, a, 8}, {b, b, 0}, {b, a, 3}};
    struct coll_op op = reduction(HVD_FLOAT32, HVD_SUM, 1, 1);
    op.tensors = tensors;
    op.n = COUNT(tensors);
    struct nccl_steps s = make(&op, 0);
    assert_int_equal(s.n, 2); /* no step for an empty part */
    assert_int_equal(s.v[0].verb, NCCL_ALLREDUCE);
    assert_int_equal(s.v[0].count, 8);
    assert_ptr_equal(s.v[1].in, b);
    assert_ptr_equal(s.v[1].out, a);
    assert_int_equal(s.v[1].count, 3);
    nccl_steps_fini(&s);
}

static void test_allgather(void **state)
{
    int16_t in[4], out[16];
    const struct coll_tensor t = {in, out, 2};
    const size_t same[] = {2, 2, 2}, different[] = {1, 0, 3};
    struct coll_op op = {
        .kind = HVD_ALLGATHER, .dtype = HVD_INT16, .tensors = &t, .n = 1, .recv_counts = same};
    struct nccl_steps s = make(&op, 1);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.v[0].verb, NCCL_ALLGATHER);
    assert_int_equal(s.form.type, NCCL_ABI_UINT8);
    assert_int_equal(s.v[0].count, 4); /* in bytes */
    nccl_steps_fini(&s);
    op.recv_counts = different;
    s = make(&op, 2);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.v[0].verb, NCCL_BROADCAST);
    assert_int_equal(s.v[0].peer, 0);
    assert_ptr_equal(s.v[0].out, out);
    assert_int_equal(s.v[0].count, 2);
    assert_int_equal(s.v[1].peer, 2);
    assert_ptr_equal(s.v[1].in, in);
    assert_ptr_equal(s.v[1].out, out + 1);
    assert_int_equal(s.v[1].count, 6);
    nccl_steps_fini(&s);
}

static void test_broadcast(void **state)
{
    double in[4], out[4];
    const struct coll_tensor t = {in, out, 4}, only_in = {in, NULL, 4}, only_out = {NULL, out, 4};
    struct coll_op op = {
        .kind = HVD_BROADCAST, .dtype = HVD_FLOAT64, .tensors = &t, .n = 1, .root = 2};
    struct nccl_steps s = make(&op, 2);
    assert_int_equal(s.v[0].peer, 2);
    assert_ptr_equal(s.v[0].in, in);
    assert_ptr_equal(s.v[0].out, out);
    assert_int_equal(s.v[0].count, 32);
    nccl_steps_fini(&s);
    op.tensors = &only_in;
    s = make(&op, 2);
    assert_ptr_equal(s.v[0].in, in);
    assert_ptr_equal(s.v[0].out, in);
    nccl_steps_fini(&s);
    op.tensors = &only_out;
    s = make(&op, 0);
    assert_ptr_equal(s.v[0].in, out);
    assert_ptr_equal(s.v[0].out, out);
    nccl_steps_fini(&s);
}

static void test_alltoall(void **state)
{
    int32_t in[8], out[8];
    const struct coll_tensor t = {in, out, 6};
    const size_t send[] = {1, 2, 3}, recv[] = {4, 2, 0};
    struct coll_op op = {.kind = HVD_ALLTOALL,
                         .dtype = HVD_INT32,
                         .tensors = &t,
                         .n = 1,
                         .send_counts = send,
                         .recv_counts = recv};
    struct nccl_steps s = make(&op, 1);
    static const struct {
        enum nccl_verb verb;
        int peer;
        int in, out;
        size_t bytes;
    } want[] = {{NCCL_SEND, 0, 0, -1, 4},
                {NCCL_RECV, 0, -1, 0, 16},
                {NCCL_COPY, 1, 1, 4, 8},
                {NCCL_SEND, 2, 3, -1, 12}};
    assert_int_equal(s.n, COUNT(want));
    for (size_t i = 0; i < s.n; i++) {
        assert_int_equal(s.v[i].verb, want[i].verb);
        assert_int_equal(s.v[i].peer, want[i].peer);
        assert_int_equal(s.v[i].count, want[i].bytes);
        if (want[i].in >= 0)
            assert_ptr_equal(s.v[i].in, in + want[i].in);
        if (want[i].out >= 0)
            assert_ptr_equal(s.v[i].out, out + want[i].out);
    }
    nccl_steps_fini(&s);
}

static void test_reducescatter(void **state)
{
    float in[16], out[8];
    const struct coll_tensor t = {in, out, 7};
    const size_t same[] = {2, 2, 2}, different[] = {3, 2, 2};
    struct coll_op op = reduction(HVD_FLOAT32, HVD_AVERAGE, 1, 1);
    op.kind = HVD_REDUCESCATTER;
    op.tensors = &t;
    op.n = 1;
    op.recv_counts = same;
    struct nccl_steps s = make(&op, 1);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.v[0].verb, NCCL_REDUCESCATTER);
    assert_int_equal(s.v[0].count, 2); /* in elements */
    assert_int_equal(s.form.op, NCCL_ABI_AVG);
    nccl_steps_fini(&s);
    op.recv_counts = different;
    s = make(&op, 1);
    assert_int_equal(s.n, 3);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s.v[r].verb, NCCL_REDUCE);
        assert_int_equal(s.v[r].peer, r);
        assert_int_equal(s.v[r].count, different[r]);
    }
    assert_ptr_equal(s.v[1].in, in + 3);
    assert_ptr_equal(s.v[2].in, in + 5);
    assert_ptr_equal(s.v[1].out, out);
    assert_null(s.v[0].out);
    nccl_steps_fini(&s);
}

static void test_nothing(void **state)
{
    const struct coll_tensor t = {NULL, NULL, 0};
    const size_t none[] = {0, 0, 0};
    for (int kind = 0; kind < HVD_BARRIER; kind++) {
        struct coll_op op = reduction(HVD_FLOAT32, HVD_SUM, 1, 1);
        op.kind = (enum hvd_kind)kind;
        op.tensors = &t;
        op.n = 1;
        op.send_counts = op.recv_counts = none;
        struct nccl_steps s = make(&op, 0);
        assert_int_equal(s.n, 0);
        nccl_steps_fini(&s);
    }
    struct coll_op barrier = {.kind = HVD_BARRIER};
    struct nccl_means m = means(22707, 3);
    struct nccl_steps s = {0};
    assert_int_equal(nccl_steps_make(&m, &barrier, 0, 1, &s, NULL), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),      cmocka_unit_test(test_old_cuda),
        cmocka_unit_test(test_rough),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_form), cmocka_unit_test(test_fused),
        cmocka_unit_test(test_allgather),  cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_alltoall),   cmocka_unit_test(test_reducescatter),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests_name("backend/nccl_steps", tests, NULL, NULL);
}
