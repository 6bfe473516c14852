/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/decision.h"

enum { RANKS = 3 };

static struct report at(uint64_t done, uint32_t pieces, uint32_t first)
{
    struct report r = {.has_state = true, .done = done, .started = pieces > 0, .pieces = pieces};
    for (uint32_t i = 0; i < pieces; i++)
        r.final[i] = first;
    return r;
}

static uint64_t departed_done; /* operations that departed ranks had finished */

static int decide(const struct report *reports, int me, struct decision *ret)
{
    struct err err = {0};
    int rc = decision_make(reports, RANKS, departed_done, me, ret, &err);
    assert_true(rc == 0 || err.msg[0]);
    return rc;
}

/* No piece of operation 7 is final, or not all ranks have started it: all start it again. */
static void test_begin_anew(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 2, 0), at(7, 0, 0), at(7, 2, 0)};
    for (int me = 0; me < RANKS; me++) {
        assert_int_equal(decide(reports, me, &d), 0);
        assert_int_equal(d.what, DECISION_NOTHING);
        assert_int_equal(d.done, 7);
    }
}

/* A rank that is behind finishes the operation that the others have finished. The others have
 * started no later operation that could be final. */
static void test_finish(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(8, 2, 0), at(7, 2, 5), at(8, 0, 0)};
    assert_int_equal(decide(reports, 1, &d), 0);
    assert_int_equal(d.what, DECISION_FINISH);
    assert_int_equal(d.done, 8);
    assert_int_equal(decide(reports, 0, &d), 0);
    assert_int_equal(d.what, DECISION_NOTHING);
    /* rank 1 reports no pieces: it must have the whole result */
    reports[1] = at(7, 0, 0);
    assert_int_equal(decide(reports, 1, &d), -EPROTO);
    reports[1].whole = true;
    assert_int_equal(decide(reports, 1, &d), 0);
    assert_int_equal(d.what, DECISION_FINISH);
}

/* A departed rank had finished the operation: it is final, and the survivors finish it. */
static void test_left(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 2, 0), at(7, 2, 5), at(7, 2, 0)};
    departed_done = 8;
    for (int me = 0; me < RANKS; me++) {
        assert_int_equal(decide(reports, me, &d), 0);
        assert_int_equal(d.what, DECISION_FINISH);
        assert_int_equal(d.done, 8);
    }
    departed_done = 7; /* all ranks had finished this one */
    assert_int_equal(decide(reports, 0, &d), 0);
    assert_int_equal(d.what, DECISION_REST);
    departed_done = 9;
    assert_int_equal(decide(reports, 0, &d), -EPROTO);
    departed_done = 0;
}

/* The survivor with the most final steps of a piece decides for that piece. */
static void test_rest(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 2, 0), at(7, 2, 3), at(7, 2, 0)};
    reports[2].final[1] = 9;
    for (int me = 0; me < RANKS; me++) {
        assert_int_equal(decide(reports, me, &d), 0);
        assert_int_equal(d.what, DECISION_REST);
        assert_int_equal(d.pieces, 2);
        assert_int_equal(d.final[0], 3);
        assert_int_equal(d.final[1], 9);
    }
}

/* One rank has the whole result and has not passed the barrier. If no rank has passed it, all
 * start the operation again. */
static void test_whole(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 0, 0), at(7, 0, 0), at(7, 0, 0)};
    reports[1].started = reports[1].whole = true;
    assert_int_equal(decide(reports, 1, &d), 0);
    assert_int_equal(d.what, DECISION_NOTHING);
    /* if all have the whole result, it is final: a rank that passed the barrier may have
     * departed */
    for (int me = 0; me < RANKS; me++)
        reports[me].started = reports[me].whole = true;
    assert_int_equal(decide(reports, 0, &d), 0);
    assert_int_equal(d.what, DECISION_FINISH);
    assert_int_equal(d.done, 8);
}

/* A joiner has no report, and does nothing. */
static void test_joiner(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 0, 0), at(7, 0, 0), {.has_state = false}};
    assert_int_equal(decide(reports, 2, &d), 0);
    assert_int_equal(d.what, DECISION_NOTHING);
    assert_int_equal(d.done, 7);
}

static void test_impossible(void **state)
{
    struct decision d;
    struct report lost_step[RANKS] = {at(9, 0, 0), at(7, 2, 1), at(9, 0, 0)};
    struct report not_begun[RANKS] = {at(7, 2, 1), at(7, 0, 0), at(7, 2, 1)};
    struct report other_pieces[RANKS] = {at(7, 2, 1), at(7, 3, 1), at(7, 2, 1)};
    assert_int_equal(decide(lost_step, 0, &d), -EPROTO);
    assert_int_equal(decide(not_begun, 0, &d), -EPROTO);
    assert_int_equal(decide(other_pieces, 0, &d), -EPROTO);
}

/* ---- batches on GPUs ---- */

static struct report on_gpu(uint64_t done, uint64_t whole)
{
    return (struct report){.has_state = true, .gpu_done = done, .gpu_whole = whole};
}

/* Returns what every rank decides. */
static int decide_gpu(const struct report *reports, uint64_t *ret)
{
    struct decision d;
    int rc = 0;
    for (int me = 0; me < RANKS; me++) {
        int own = decide(reports, me, &d);
        assert_true(me == 0 || (own == rc && (rc < 0 || d.gpu_done == *ret)));
        rc = own;
        *ret = d.gpu_done;
    }
    return rc;
}

static void test_gpu(void **state)
{
    const uint64_t most = UINT64_MAX;
    const struct {
        uint64_t done[RANKS], whole[RANKS];
        int rc;
        uint64_t want;
    } rows[] = {
        {{0, 0, 0}, {0, 0, 0}, 0, 0},
        {{5, 5, 5}, {5, 5, 5}, 0, 5},
        /* some have the result of batch 4 and more, but not all */
        {{3, 3, 4}, {5, 4, 6}, 0, 4},
        /* all have it: a rank that is lost may have finished it */
        {{3, 3, 3}, {4, 4, 4}, 0, 4},
        {{3, 3, 3}, {4, 3, 4}, 0, 3},
        /* a rank has finished what another one does not have */
        {{4, 2, 2}, {4, 3, 4}, -EPROTO, 0},
        {{5, 3, 3}, {4, 4, 4}, -EPROTO, 0},
        {{0, 0, 1}, {most, 0, 1}, -EPROTO, 0},
        {{most, 0, 0}, {most, 7, 7}, -EPROTO, 0},
        {{5, 5, 5}, {most, 6, 7}, 0, 6},
        {{5, 5, 5}, {most, most, most}, 0, most},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct report reports[RANKS];
        uint64_t done = 0;
        for (int r = 0; r < RANKS; r++)
            reports[r] = on_gpu(rows[i].done[r], rows[i].whole[r]);
        assert_int_equal(decide_gpu(reports, &done), rows[i].rc);
        if (rows[i].rc == 0)
            assert_int_equal(done, rows[i].want);
    }
}

/* The counts of a rank without state do not matter. If no rank has state, they begin with 0. */
static void test_gpu_joiner(void **state)
{
    struct report reports[RANKS] = {on_gpu(3, 5), on_gpu(9, 0), on_gpu(3, 4)};
    uint64_t done;
    reports[1].has_state = false;
    assert_int_equal(decide_gpu(reports, &done), 0);
    assert_int_equal(done, 4);
    reports[0].has_state = reports[2].has_state = false;
    assert_int_equal(decide_gpu(reports, &done), 0);
    assert_int_equal(done, 0);
}

/* After the first decision every rank reports no more than was decided: rank 2 has followed it,
 * ranks 0 and 1 not yet. The lost rank had the smallest count. */
static void test_gpu_twice(void **state)
{
    struct report reports[RANKS] = {on_gpu(2, 5), on_gpu(3, 4), on_gpu(1, 3)};
    uint64_t first, second;
    assert_int_equal(decide_gpu(reports, &first), 0);
    assert_int_equal(first, 3);
    reports[0].gpu_whole = reports[1].gpu_whole = first;
    reports[2] = on_gpu(first, first);
    assert_int_equal(decide_gpu(reports, &second), 0);
    assert_int_equal(second, first);
    reports[2].has_state = false; /* it was lost, a joiner has its rank */
    assert_int_equal(decide_gpu(reports, &second), 0);
    assert_int_equal(second, first);
}

/* The two lanes are decided independently. */
static void test_gpu_beside_host(void **state)
{
    struct decision d;
    struct report reports[RANKS] = {at(7, 2, 0), at(7, 2, 3), at(7, 2, 0)};
    for (int r = 0; r < RANKS; r++) {
        reports[r].gpu_done = 3;
        reports[r].gpu_whole = 5 + (uint64_t)r;
    }
    assert_int_equal(decide(reports, 0, &d), 0);
    assert_int_equal(d.what, DECISION_REST);
    assert_int_equal(d.done, 7);
    assert_int_equal(d.gpu_done, 5);
}

/* ---- on the wire ---- */

static void put_head(struct buf *buf, uint8_t flags, uint32_t pieces)
{
    buf_reset(buf);
    buf_put_u8(buf, flags);
    for (int i = 0; i < 3; i++)
        buf_put_u64(buf, 1);
    buf_put_u32(buf, pieces);
}

/* A report is read back as it was written. It is refused if it is cut anywhere or has an invalid
 * count of pieces. */
static void test_wire(void **state)
{
    struct err err = {0};
    struct report in = at(1ULL << 40, 3, 70000), out;
    struct buf buf = {0};
    in.whole = true;
    in.gpu_done = 5ULL << 40;
    in.gpu_whole = 6ULL << 40;
    report_put(&in, &buf);
    size_t len = buf.len;
    for (size_t n = 0; n < len; n++) {
        struct buf cut = {0};
        buf_put(&cut, buf.data, n);
        assert_int_equal(report_take(&cut, &out, &err), -EPROTO);
        buf_fini(&cut);
    }
    buf_put(&buf, "card", 4);
    assert_int_equal(report_take(&buf, &out, &err), 0);
    assert_int_equal(out.done, in.done);
    assert_true(out.whole && out.started && out.has_state);
    assert_int_equal(out.gpu_done, in.gpu_done);
    assert_int_equal(out.gpu_whole, in.gpu_whole);
    assert_int_equal(out.pieces, 3);
    assert_int_equal(out.final[2], 70000);
    assert_int_equal(buf.len, 4);
    assert_memory_equal(buf.data, "card", 4);
    in.pieces = REPORT_PIECES_MAX;
    buf_reset(&buf);
    report_put(&in, &buf);
    assert_int_equal(buf.len, REPORT_BYTES_MAX);
    put_head(&buf, 15, 0);
    assert_int_equal(report_take(&buf, &out, &err), 0);
    put_head(&buf, 16, 0);
    assert_int_equal(report_take(&buf, &out, &err), -EPROTO);
    put_head(&buf, 1, REPORT_PIECES_MAX + 1);
    for (int i = 0; i <= REPORT_PIECES_MAX; i++)
        buf_put_u32(&buf, 0);
    assert_int_equal(report_take(&buf, &out, &err), -EPROTO);
    buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begin_anew),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_joiner),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_joiner),
        cmocka_unit_test(test_gpu_twice),
        cmocka_unit_test(test_gpu_beside_host),
        cmocka_unit_test(test_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
