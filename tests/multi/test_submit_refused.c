/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that are refused: invalid requests at once, on the rank that makes them; requests about
 * which the ranks disagree on every rank, with what each rank asked for.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* ---- disagreement ---- */

static int expect_mismatch(struct hvd_request *r, const char *word)
{
    hvd_handle h;
    int rc = hvd_submit(r, 1, &h);
    rc = rc ? rc : hvd_wait(h);
    if (rc != -EINVAL || !strstr(hvd_error(), r->name) || !strstr(hvd_error(), word))
        return FAIL("%s: %d: %s", r->name, rc, hvd_error());
    return 0;
}

static int disagree(int rank, int size, void *arg)
{
    float x[8] = {1};
    int64_t count = 4, other = rank == size - 1 ? 5 : 4;
    bool odd = rank == size - 1;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 3; k++) {
        struct hvd_request r = rank_request("layer.dtype", x, &count);
        r.dtype = odd ? HVD_INT32 : HVD_FLOAT32;
        int rc = expect_mismatch(&r, "int32");
        r = rank_request("layer.shape", x, &other);
        rc = rc ? rc : expect_mismatch(&r, "5");
        r = rank_request("layer.op", x, &count);
        r.op = odd ? HVD_MAX : HVD_SUM;
        rc = rc ? rc : expect_mismatch(&r, "max");
        r = rank_request("layer.root", x, &count);
        r.kind = HVD_BROADCAST;
        r.root = odd ? 1 : 0;
        rc = rc ? rc : expect_mismatch(&r, "root");
        r = rank_request("layer.kind", x, &count);
        r.kind = odd ? HVD_BROADCAST : HVD_ALLREDUCE;
        rc = rc ? rc : expect_mismatch(&r, "broadcast");
        r = rank_request("layer.scale", x, &count);
        r.prescale = odd ? 2 : 1;
        rc = rc ? rc : expect_mismatch(&r, "scale");
        if (rc)
            return rc;
        if (x[0] != 1 || x[4] != 0)
            return FAIL("a refused request has changed its data");
        for (int i = 0; i < 10; i++) {
            float y = 1;
            if (hvd_allreduce("good", &y, &y, 1, HVD_FLOAT32, HVD_SUM) != 0 || y != (float)size)
                return FAIL("after a mismatch: %s", hvd_error());
        }
    }
    return hvd_shutdown() != 0;
}

static void test_disagree(void **state)
{
    for (int size = 2; size <= 4; size++)
        assert_int_equal(world_run(size, disagree, NULL), 0);
}

/* ---- refused at once ---- */

static int refused(struct hvd_request r, int want, const char *word)
{
    hvd_handle h;
    int rc = hvd_submit(&r, 1, &h);
    if (rc != want || !strstr(hvd_error(), word))
        return FAIL("%s: %d: %s", word, rc, hvd_error());
    return 0;
}

static int bad_requests(int rank, int size, void *arg)
{
    float x[16] = {0};
    int64_t count = 8, minus = -1, huge[3] = {1LL << 40, 1LL << 40, 4}, splits[2] = {3, 4};
    struct hvd_request r = rank_request("bad", x, &count), g[2] = {r, r};
    hvd_handle h[2];
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
#define TRY(what, want, word)                                                                      \
    if (!rc) {                                                                                     \
        struct hvd_request t = r;                                                                  \
        what;                                                                                      \
        rc = refused(t, want, word);                                                               \
    }
    TRY((t.op = HVD_ADASUM, t.kind = HVD_REDUCESCATTER), -ENOTSUP, "adasum")
    TRY((t.op = HVD_AVERAGE, t.dtype = HVD_BOOL), -EINVAL, "average of bool")
    TRY(t.op = (enum hvd_op)77, -EINVAL, "op 77")
    TRY(t.dtype = (enum hvd_dtype)99, -EINVAL, "dtype 99")
    TRY(t.kind = (enum hvd_kind)50, -EINVAL, "kind of operation 50")
    TRY(t.ndim = 17, -EINVAL, "17 dimensions")
    TRY(t.shape = &minus, -EINVAL, "dimension 0 is -1")
    TRY((t.shape = huge, t.ndim = 3), -EINVAL, "too large")
    TRY(t.shape = NULL, -EINVAL, "no shape")
    TRY(t.input = NULL, -EINVAL, "no input")
    TRY(t.output = NULL, -EINVAL, "no output")
    TRY(t.output = x + 3, -EINVAL, "overlap")
    TRY((t.kind = HVD_BROADCAST, t.root = size), -EINVAL, "root")
    TRY((t.kind = HVD_ALLGATHER, t.output = NULL, t.ndim = 0), -EINVAL, "at least one dimension")
    TRY(t.kind = HVD_ALLGATHER, -EINVAL, "in place")
    TRY((t.kind = HVD_ALLGATHER, t.output_rows = 3), -EINVAL, "in place")
    TRY((t.kind = HVD_ALLGATHER, t.output = x + 2, t.output_rows = 1), -EINVAL, "overlap")
    TRY((t.kind = HVD_ALLGATHER, t.output_rows = -1), -EINVAL, "output_rows")
    TRY((t.kind = HVD_ALLGATHER, t.output_rows = INT64_MAX), -EINVAL, "output_rows")
    TRY((t.kind = HVD_ALLTOALL, t.output = NULL, t.splits = splits), -EINVAL, "splits add up")
    TRY(t.name = "", -EINVAL, "name")
    TRY(t.device = -2, -EINVAL, "device -2")
#undef TRY
    if (rc)
        return rc;
    if (hvd_submit(g, 0, h) != -EINVAL || hvd_submit(g, HVD_MAX_GROUP + 1, h) != -EINVAL)
        return FAIL("sizes of groups");
    if (hvd_submit(g, 2, h) != -EEXIST || !strstr(hvd_error(), "bad"))
        return FAIL("twice in a group: %s", hvd_error());
    g[1].name = "other";
    g[1].kind = HVD_BARRIER;
    if (hvd_submit(g, 2, h) != -EINVAL || !strstr(hvd_error(), "group"))
        return FAIL("two kinds in a group: %s", hvd_error());
    char name[300];
    memset(name, 'n', sizeof(name));
    name[256] = 0;
    r.name = name;
    rc = refused(r, -EINVAL, "name");
    name[255] = 0;
    if (!rc && (hvd_submit(&r, 1, h) != 0 || hvd_wait(h[0]) != 0))
        return FAIL("longest name: %s", hvd_error());
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_bad_requests(void **state)
{
    assert_int_equal(world_run(2, bad_requests, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/submit_refused/hosts"))
        return;
    struct world_options o = {.size = 4, .hosts = 2};
    assert_int_equal(world_run_options(&o, disagree, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disagree),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
