/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of claim and of signatures on the wire: messages are read back as they were written, cut
 * and invalid messages are refused, texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/negotiate/claim.h"
#include "core/negotiate/signature.h"

enum { SIZE = 8 };

static struct signature make(enum hvd_kind kind, int64_t rows)
{
    return (struct signature){.kind = (uint8_t)kind,
                              .dtype = HVD_FLOAT32,
                              .op = HVD_SUM,
                              .ndim = 2,
                              .device = -1,
                              .prescale = 1,
                              .postscale = 1,
                              .shape = {rows, 4}};
}

static void add(struct claim **claims, bool by_id, const struct signature *sig, int from, int to)
{
    struct rankset ranks;
    struct claim *c;
    struct signature common = signature_common(sig);
    assert_int_equal(rankset_init(&ranks, SIZE), 0);
    for (int i = from; i <= to; i++)
        rankset_add(&ranks, i);
    assert_int_equal(claims_add(claims, by_id, &common, &ranks, &c), 0);
    for (int i = from; i <= to && !by_id && signature_has_dim0(sig); i++)
        assert_int_equal(claim_set_extra(c, i, sig->shape[0]), 0);
    rankset_fini(&ranks);
}

static int read_back(const struct buf *b, size_t len, const struct signature *cached,
                     struct claim **ret, struct rankset *ranks)
{
    struct reader r = reader_over(b->data, len);
    int rc = claims_read(ret, SIZE, cached, &r, ranks);
    return rc < 0 ? rc : reader_ok(&r) ? 0 : -EPROTO;
}

static void test_wire(void **state)
{
    struct claim *claims = NULL, *copy = NULL;
    struct rankset ranks;
    struct buf b = {0}, again = {0};
    struct signature gather = make(HVD_ALLGATHER, 3), toall = make(HVD_ALLTOALL, 0),
                     sum = make(HVD_ALLREDUCE, 9), adasum = make(HVD_ALLREDUCE, 9);
    adasum.op = HVD_ADASUM;
    adasum.by_host = true;
    assert_int_equal(rankset_init(&ranks, SIZE), 0);
    add(&claims, false, &gather, 0, 1);
    add(&claims, false, &toall, 2, 2);
    add(&claims, false, &sum, 3, 5);
    add(&claims, true, &sum, 6, 6);
    add(&claims, false, &adasum, 7, 7);
    claims_write(claims, &b);
    assert_int_equal(read_back(&b, b.len, &sum, &copy, &ranks), 0);
    assert_int_equal(rankset_count(&ranks), 8);
    claims_write(copy, &again);
    assert_int_equal(b.len, again.len);
    assert_memory_equal(b.data, again.data, b.len);
    claims_free(&copy);
    /* A message with a cache id that the reader does not know. */
    assert_int_equal(read_back(&b, b.len, NULL, &copy, &ranks), -EPROTO);
    claims_free(&copy);
    for (size_t cut = 0; cut < b.len; cut++) {
        assert_int_equal(read_back(&b, cut, &sum, &copy, &ranks), -EPROTO);
        claims_free(&copy);
    }
    claims_free(&claims);
    rankset_fini(&ranks);
    buf_fini(&b);
    buf_fini(&again);
}

static void test_rank_twice(void **state)
{
    struct claim *claims = NULL, *copy = NULL;
    struct rankset ranks;
    struct buf b = {0};
    struct signature sum = make(HVD_ALLREDUCE, 9), other = make(HVD_ALLREDUCE, 8);
    assert_int_equal(rankset_init(&ranks, SIZE), 0);
    add(&claims, false, &sum, 0, 3);
    add(&claims, false, &other, 3, 4);
    claims_write(claims, &b);
    assert_int_equal(read_back(&b, b.len, NULL, &copy, &ranks), -EPROTO);
    claims_free(&copy);
    claims_free(&claims);
    rankset_fini(&ranks);
    buf_fini(&b);
}

static void test_text(void **state)
{
    struct claim *claims = NULL;
    char text[200];
    struct signature sum = make(HVD_ALLREDUCE, 10), other = make(HVD_ALLREDUCE, 11);
    add(&claims, false, &other, 1, 1);
    add(&claims, true, &sum, 0, 0);
    add(&claims, false, &sum, 2, 3);
    assert_false(claims_agree(claims));
    claims_settle(&claims);
    claims_text(claims, NULL, "grad.3", text, sizeof(text));
    assert_string_equal(text, "allreduce 'grad.3': rank 0,2-3: float32 [10,4] sum; "
                              "rank 1: float32 [11,4] sum");
    char small[20];
    claims_text(claims, NULL, "grad.3", small, sizeof(small));
    assert_string_equal(small, "allreduce 'grad.3':");
    claims_drop_ids(&claims);
    claims_free(&claims);
    add(&claims, true, &sum, 0, 0);
    add(&claims, false, &sum, 2, 3);
    assert_true(claims_agree(claims));
    claims_drop_ids(&claims);
    assert_null(claims->next);
    claims_free(&claims);
}

static void test_signatures(void **state)
{
    struct signature a = make(HVD_ALLREDUCE, 10), b = a;
    char text[100];
    memset(&b.shape[2], 0xff, sizeof(b.shape[2])); /* beyond ndim: not compared */
    assert_true(signature_equal(&a, &b));
    b.postscale = 0.5;
    assert_false(signature_equal(&a, &b));
    assert_false(signature_fusable(&a, &b));
    signature_text(&b, text, sizeof(text));
    assert_string_equal(text, "float32 [10,4] sum scaled 1 0.5");
    assert_int_equal(signature_bytes(&a), 160);
    a.shape[0] = INT64_MAX;
    assert_true(signature_bytes(&a) == UINT64_MAX / 2);
    a = make(HVD_BROADCAST, 1);
    a.root = -1;
    assert_int_equal(signature_check(&a, NULL), -EINVAL);
    a = make(HVD_BROADCAST, -1);
    assert_int_equal(signature_check(&a, NULL), -EINVAL);
    a = make(HVD_KINDS, 1);
    assert_int_equal(signature_check(&a, NULL), -EINVAL);
    a = make(HVD_ALLREDUCE, 1);
    a.group_size = a.group_index = 3;
    assert_int_equal(signature_check(&a, NULL), -EINVAL);
}

/* All ranks announce an alltoall: the message does not grow with what they send to each other. */
static void test_many_ranks(void **state)
{
    enum { MANY = 1024 };
    struct claim *claims = NULL, *c;
    struct rankset ranks;
    struct buf b = {0};
    struct signature toall = make(HVD_ALLTOALL, 0);
    assert_int_equal(rankset_init(&ranks, MANY), 0);
    for (int r = 0; r < MANY; r++) {
        rankset_clear(&ranks);
        rankset_add(&ranks, r);
        assert_int_equal(claims_add(&claims, false, &toall, &ranks, &c), 0);
    }
    assert_null(claims->next);
    claims_write(claims, &b);
    assert_in_range(b.len, 1, 256);
    buf_fini(&b);
    rankset_fini(&ranks);
    claims_free(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire),       cmocka_unit_test(test_rank_twice),
        cmocka_unit_test(test_text),       cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
