/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective and dtype through core/backend/nccl_comm on the libnccl.so.2 of tests/fake: 1 to
 * 4 ranks, three versions of NCCL, counts that are equal, uneven and 0. Failures are in
 * tests/multi/test_nccl_faults.
 *
 * takes: 4 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/coll/half.h"
#include "core/coll/reduce.h"
#include "tests/harness/nccl_rank.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MOST      40000 /* elements: more than a cell of the fake holds */
#define ROWS      700   /* at most from one rank to another: more than one message of the fake */
#define ELEM_MOST 8

struct buffers {
    uint8_t in[MOST * ELEM_MOST], out[MOST * ELEM_MOST];
};

/* ---- values: small whole numbers, which every dtype has ---- */

static void put(enum hvd_dtype dtype, void *at, int value)
{
    float f = (float)value;
    double d = value;
    int32_t i = value;
    int64_t l = value;
    int16_t s = (int16_t)value;
    uint16_t h;
    switch (dtype) {
    case HVD_FLOAT32:
        memcpy(at, &f, sizeof(f));
        break;
    case HVD_FLOAT64:
        memcpy(at, &d, sizeof(d));
        break;
    case HVD_INT32:
        memcpy(at, &i, sizeof(i));
        break;
    case HVD_INT64:
        memcpy(at, &l, sizeof(l));
        break;
    case HVD_INT16:
    case HVD_UINT16:
        memcpy(at, &s, sizeof(s));
        break;
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        h = dtype == HVD_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
        memcpy(at, &h, sizeof(h));
        break;
    default:
        *(uint8_t *)at = (uint8_t)value;
    }
}

static bool same(enum hvd_dtype dtype, const uint8_t *at, int value)
{
    uint8_t want[ELEM_MOST];
    put(dtype, want, value);
    return memcmp(at, want, hvd_dtype_size(dtype)) == 0;
}

/* What rank r contributes at index i. */
static int given(int r, size_t i)
{
    return 1 + (int)((i + (size_t)r * 3) % 5);
}

static void fill(struct buffers *b, enum hvd_dtype dtype, int rank, size_t n)
{
    size_t elem = hvd_dtype_size(dtype);
    for (size_t i = 0; i < n; i++)
        put(dtype, b->in + i * elem, given(rank, i));
    memset(b->out, 0xee, sizeof(b->out));
}

static int reduced(enum hvd_op op, int size, size_t i)
{
    int v = given(0, i);
    for (int r = 1; r < size; r++) {
        int w = given(r, i);
        v = op == HVD_PRODUCT ? v * w
            : op == HVD_MIN   ? (w < v ? w : v)
            : op == HVD_MAX   ? (w > v ? w : v)
                              : v + w;
    }
    return v;
}

/* ---- one operation of each kind ---- */

struct job {
    struct nccl_rank r;
    struct buffers *b;
    enum hvd_dtype dtype;
};

static struct coll_op op_of(const struct job *j, enum hvd_kind kind, enum hvd_op op,
                            const struct coll_tensor *t, size_t n)
{
    return (struct coll_op){.kind = kind,
                            .dtype = j->dtype,
                            .op = op,
                            .prescale = 1,
                            .postscale = 1,
                            .contributors = j->r.size,
                            .tensors = t,
                            .n = n};
}

/* Two tensors of a batch, and an empty one between them. */
static int allreduce(struct job *j, enum hvd_op op, size_t n)
{
    size_t elem = hvd_dtype_size(j->dtype), first = n / 3;
    const struct coll_tensor t[] = {{j->b->in, j->b->out, first},
                                    {j->b->in, j->b->out, 0},
                                    {j->b->in + first * elem, j->b->out + first * elem, n - first}};
    struct coll_op o = op_of(j, HVD_ALLREDUCE, op, t, COUNT(t));
    fill(j->b, j->dtype, j->r.rank, n);
    int rc = nccl_rank_run(&j->r, &o);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (!same(j->dtype, j->b->out + i * elem, reduced(op, j->r.size, i)))
            return -EBADMSG;
    }
    return 0;
}

/* In place; prescale 4 and postscale 0.5 double the sum. Without kernels only floats can be scaled.
 */
static int scaled(struct job *j, size_t n)
{
    size_t elem = hvd_dtype_size(j->dtype);
    const struct coll_tensor t = {j->b->in, j->b->in, n};
    struct coll_op o = op_of(j, HVD_ALLREDUCE, HVD_SUM, &t, 1);
    o.prescale = 4;
    o.postscale = 0.5;
    fill(j->b, j->dtype, j->r.rank, n);
    int rc = nccl_rank_run(&j->r, &o);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (!same(j->dtype, j->b->in + i * elem, 2 * reduced(HVD_SUM, j->r.size, i)))
            return -EBADMSG;
    }
    return 0;
}

/* All ranks have the same values, so the average is equal to them. */
static int average(struct job *j, size_t n)
{
    size_t elem = hvd_dtype_size(j->dtype);
    const struct coll_tensor t = {j->b->in, j->b->out, n};
    struct coll_op o = op_of(j, HVD_ALLREDUCE, HVD_AVERAGE, &t, 1);
    fill(j->b, j->dtype, 0, n);
    int rc = nccl_rank_run(&j->r, &o);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (!same(j->dtype, j->b->out + i * elem, given(0, i)))
            return -EBADMSG;
    }
    return 0;
}

static int broadcast(struct job *j, int root, size_t n)
{
    size_t elem = hvd_dtype_size(j->dtype);
    const struct coll_tensor t = {j->b->in, j->b->out, n};
    struct coll_op o = op_of(j, HVD_BROADCAST, HVD_SUM, &t, 1);
    o.root = root;
    fill(j->b, j->dtype, j->r.rank, n);
    int rc = nccl_rank_run(&j->r, &o);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (!same(j->dtype, j->b->out + i * elem, given(root, i)))
            return -EBADMSG;
    }
    return 0;
}

static int allgather(struct job *j, const size_t *counts)
{
    size_t elem = hvd_dtype_size(j->dtype), at = 0;
    const struct coll_tensor t = {j->b->in, j->b->out, counts[j->r.rank]};
    struct coll_op o = op_of(j, HVD_ALLGATHER, HVD_SUM, &t, 1);
    o.recv_counts = counts;
    fill(j->b, j->dtype, j->r.rank, counts[j->r.rank]);
    int rc = nccl_rank_run(&j->r, &o);
    for (int r = 0; r < j->r.size && rc == 0; r++) {
        for (size_t i = 0; i < counts[r]; i++) {
            if (!same(j->dtype, j->b->out + at++ * elem, given(r, i)))
                return -EBADMSG;
        }
    }
    return rc;
}

/* rows from rank `from` to rank `to` */
static size_t rows(int from, int to, bool uneven)
{
    return uneven ? (size_t)((from * 5 + to * 3) % 4) * 233 : ROWS;
}

static int alltoall(struct job *j, bool uneven)
{
    size_t elem = hvd_dtype_size(j->dtype), send[8], recv[8], n = 0, at = 0;
    for (int r = 0; r < j->r.size; r++) {
        send[r] = rows(j->r.rank, r, uneven);
        recv[r] = rows(r, j->r.rank, uneven);
        n += send[r];
    }
    const struct coll_tensor t = {j->b->in, j->b->out, n};
    struct coll_op o = op_of(j, HVD_ALLTOALL, HVD_SUM, &t, 1);
    o.send_counts = send;
    o.recv_counts = recv;
    fill(j->b, j->dtype, j->r.rank, n);
    int rc = nccl_rank_run(&j->r, &o);
    for (int r = 0; r < j->r.size && rc == 0; r++) {
        size_t before = 0;
        for (int to = 0; to < j->r.rank; to++)
            before += rows(r, to, uneven);
        for (size_t i = 0; i < recv[r]; i++) {
            if (!same(j->dtype, j->b->out + at++ * elem, given(r, before + i)))
                return -EBADMSG;
        }
    }
    return rc;
}

static int reducescatter(struct job *j, const size_t *counts)
{
    size_t elem = hvd_dtype_size(j->dtype), n = 0, before = 0;
    for (int r = 0; r < j->r.size; r++) {
        before += r < j->r.rank ? counts[r] : 0;
        n += counts[r];
    }
    const struct coll_tensor t = {j->b->in, j->b->out, n};
    struct coll_op o = op_of(j, HVD_REDUCESCATTER, HVD_SUM, &t, 1);
    o.recv_counts = counts;
    fill(j->b, j->dtype, j->r.rank, n);
    int rc = nccl_rank_run(&j->r, &o);
    for (size_t i = 0; i < counts[j->r.rank] && rc == 0; i++) {
        if (!same(j->dtype, j->b->out + i * elem, reduced(HVD_SUM, j->r.size, before + i)))
            return -EBADMSG;
    }
    return rc;
}

/* ---- all kinds ---- */

/* Returns whether NCCL can do this operation without kernels. If not, it must fail with the error
 * that says so. */
static bool possible(const struct job *j, enum hvd_op op)
{
    if (j->dtype == HVD_BOOL || j->dtype == HVD_INT16 || j->dtype == HVD_UINT16 ||
        j->dtype >= REDUCE_DTYPES)
        return false;
    bool is_float = j->dtype == HVD_FLOAT16 || j->dtype == HVD_BFLOAT16 ||
                    j->dtype == HVD_FLOAT32 || j->dtype == HVD_FLOAT64;
    if (op == HVD_BAND || op == HVD_BOR || op == HVD_BXOR)
        return false;
    return op != HVD_AVERAGE || j->r.size == 1 || is_float;
}

static int one_dtype(struct job *j)
{
    static const size_t even[] = {300, 300, 300, 300}, uneven[] = {301, 0, 7, 300};
    int rc = 0;
    for (int op = HVD_SUM; op < HVD_OPS && rc == 0; op++) {
        if (op == HVD_ADASUM)
            continue;
        rc = allreduce(j, (enum hvd_op)op, op == HVD_SUM && j->dtype == HVD_FLOAT32 ? MOST : 999);
        if (!possible(j, (enum hvd_op)op) && rc == -ENOTSUP)
            rc = 0;
        if (rc != 0)
            return FAIL("%s %s: %d %s", hvd_dtype_name(j->dtype), hvd_op_name((enum hvd_op)op), rc,
                        j->r.err.msg);
    }
    rc = average(j, 100);
    if (rc != (possible(j, HVD_AVERAGE) ? 0 : -ENOTSUP))
        return FAIL("%s average: %d %s", hvd_dtype_name(j->dtype), rc, j->r.err.msg);
    rc = broadcast(j, j->r.size - 1, 1234);
    if (rc == 0)
        rc = allgather(j, even);
    if (rc == 0)
        rc = allgather(j, uneven);
    if (rc == 0)
        rc = alltoall(j, false);
    if (rc == 0)
        rc = alltoall(j, true);
    if (rc != 0)
        return FAIL("%s moved: %d %s", hvd_dtype_name(j->dtype), rc, j->r.err.msg);
    if (possible(j, HVD_SUM) && ((rc = reducescatter(j, even)) || (rc = reducescatter(j, uneven))))
        return FAIL("%s scattered: %d %s", hvd_dtype_name(j->dtype), rc, j->r.err.msg);
    return 0;
}

static int all_kinds(int rank, int size, void *arg)
{
    static const struct {
        const char *name;
        int dtypes; /* how many dtypes to try; float32 and bfloat16 are always tried */
    } * v, versions[] = {{"2.27", HVD_DTYPES}, {"2.18", 0}, {"2.14", HVD_DTYPES}};
    struct nccl_meeting *meetings = arg;
    int rc = 0;
    /* A process normally has one NCCL. These are loaded by their paths and do not see each other,
     * so one process can use all of them. */
    for (v = versions; v < versions + COUNT(versions) && rc == 0; v++) {
        struct job j = {.b = malloc(sizeof(*j.b))};
        if (!j.b || nccl_rank_open(&j.r, v->name, rank, size, &meetings[v - versions]) < 0)
            return FAIL("no NCCL %s: %s", v->name, j.r.err.msg);
        if (nccl_rank_start(&j.r, 0, rank, size) != 0)
            return FAIL("NCCL %s does not start: %s", v->name, j.r.err.msg);
        for (int d = 0; d < HVD_DTYPES && rc == 0; d++) {
            j.dtype = (enum hvd_dtype)d;
            if (d < v->dtypes || d == HVD_FLOAT32 || d == HVD_BFLOAT16)
                rc = one_dtype(&j);
        }
        j.dtype = HVD_FLOAT32;
        if (rc == 0 && (rc = scaled(&j, 500)) != 0)
            rc = FAIL("NCCL %s, factors: %d %s", v->name, rc, j.r.err.msg);
        if (!nccl_rank_close(&j.r) && rc == 0)
            rc = FAIL("NCCL %s has leaked an object", v->name);
        free(j.b);
    }
    return rc;
}

static void test_kinds(void **state)
{
    for (int size = 1; size <= 4; size++) {
        struct nccl_meeting *meetings = world_shared(8 * sizeof(*meetings));
        assert_int_equal(world_run(size, all_kinds, meetings), 0);
    }
}

/* An event that is recorded before the launch is complete does not cover it, so the launch reaches
 * the stream only after it is complete. */
static int polled(int rank, int size, void *arg)
{
    struct nccl_rank r = {0};
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    const struct coll_tensor t = {in, out, 4};
    const struct coll_op op = {.kind = HVD_ALLREDUCE,
                               .dtype = HVD_FLOAT32,
                               .op = HVD_SUM,
                               .prescale = 1,
                               .postscale = 1,
                               .contributors = size,
                               .tensors = &t,
                               .n = 1};
    setenv("FAKE_NCCL_POLLS", "5", 1);
    if (nccl_rank_open(&r, "2.27", rank, size, arg) < 0 || nccl_rank_start(&r, 0, rank, size) != 0)
        return FAIL("%s", r.err.msg);
    const struct nccl_means means = {.version = r.api.version, .cuda = r.api.cuda};
    if (nccl_steps_make(&means, &op, rank, size, &r.steps, NULL) < 0 ||
        nccl_comm_launch(r.comm, &r.steps, r.stream, &r.err) < 0)
        return FAIL("%s", r.err.msg);
    if (nccl_comm_launch(r.comm, &r.steps, r.stream, &r.err) != -EBUSY)
        return FAIL("a second launch was accepted before the first was done");
    if (nccl_comm_phase(r.comm) != NCCL_LAUNCH || nccl_comm_progress(r.comm, &r.err) != 1)
        return FAIL("the launch was done without polling");
    if (nccl_rank_drive(&r, 5000) != 0 || nccl_comm_phase(r.comm) != NCCL_READY)
        return FAIL("%s", r.err.msg);
    for (int i = 0; i < 5000 && !r.idle(r.stream); i++)
        nap_ms(1);
    if (out[3] != 4.0f * (float)size)
        return FAIL("%f", out[3]);
    return nccl_rank_close(&r) ? 0 : FAIL("NCCL has leaked an object");
}

static void test_polled(void **state)
{
    assert_int_equal(world_run(2, polled, world_shared(sizeof(struct nccl_meeting))), 0);
}

/* The driver does not block while another rank has not come. */
static int waiting(int rank, int size, void *arg)
{
    struct nccl_rank r = {0};
    struct nccl_meeting *m = arg;
    if (nccl_rank_open(&r, "2.14", rank, size, m) < 0)
        return FAIL("%s", r.err.msg);
    /* rank 1 comes only when rank 0 has seen that its own init waits */
    if (rank == 1 && !nccl_rank_meet(&r, 0, size, 10000))
        return FAIL("rank 0 does not come");
    if (nccl_rank_begin(&r, 0, rank, size) < 0)
        return FAIL("%s", r.err.msg);
    for (int i = 0; rank == 0 && i < 100; i++) {
        if (nccl_comm_progress(r.comm, &r.err) != 1)
            return FAIL("ready before rank 1 has started");
        nap_ms(1);
    }
    if (rank == 0 && !nccl_rank_meet(&r, 0, size, 10000))
        return FAIL("rank 1 does not come");
    if (nccl_rank_drive(&r, 10000) != 0)
        return FAIL("%s", r.err.msg);
    if (nccl_rank_check(&r) != 0)
        return FAIL("%s", r.err.msg);
    return nccl_rank_close(&r) ? 0 : FAIL("NCCL has leaked an object");
}

static void test_waiting(void **state)
{
    assert_int_equal(world_run(2, waiting, world_shared(sizeof(struct nccl_meeting))), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_polled),
        cmocka_unit_test(test_waiting),
    };
    return cmocka_run_group_tests_name("multi/nccl", tests, NULL, NULL);
}
