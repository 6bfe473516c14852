/* SPDX-License-Identifier: Apache-2.0
 *
 * test_staged_cut: how an operation on a device is cut into chunks. Every element is in one chunk,
 * in order and within its memory, and the cuts of a tensor depend on that tensor alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/staged.h"

#define FLOATS (STAGED_CHUNK / 4)

static struct staged_chunk chunk;
static const struct mesh mesh = {.rank = 1, .size = 3};

/* Addresses are only compared. */
static uint8_t *place(unsigned tensor)
{
    return (uint8_t *)((uintptr_t)(tensor + 1) << 32);
}

/* Returns the number of chunks. Checks that each tensor's elements come in order and all of
 * them. */
static size_t cut_all(const struct coll_tensor *tensors, size_t n)
{
    struct coll_op op = {
        .kind = HVD_ALLREDUCE, .dtype = HVD_FLOAT32, .device = 0, .tensors = tensors, .n = n};
    struct staged_cut cut = {.op = &op, .mesh = &mesh};
    size_t tensor = 0, element = 0, chunks = 0;
    for (; staged_cut_next(&cut, &chunk); chunks++) {
        size_t end = 0;
        assert_true(chunk.in_size <= staged_room(&mesh, &op));
        for (size_t i = 0; i < chunk.n; i++) {
            const struct staged_piece *p = &chunk.pieces[i];
            while (element == tensors[tensor].count) {
                tensor++;
                element = 0;
            }
            assert_ptr_equal(p->in, (const uint8_t *)tensors[tensor].in + element * 4);
            assert_ptr_equal(p->out, (uint8_t *)tensors[tensor].out + element * 4);
            assert_int_equal(p->in_bytes, p->count * 4);
            assert_int_equal(p->out_bytes, p->in_bytes);
            assert_true(p->in_at >= end && p->in_at % 64 == 0 && p->out_at == p->in_at);
            assert_int_equal(element % FLOATS, 0);
            end = p->in_at + p->in_bytes;
            element += p->count;
        }
        assert_int_equal(chunk.in_size, end);
        assert_int_equal(chunk.out_end, end);
        assert_int_equal(chunk.out_at, 0);
    }
    for (; tensor < n; tensor++, element = 0)
        assert_int_equal(element, tensors[tensor].count);
    assert_false(staged_cut_next(&cut, &chunk));
    assert_int_equal(staged_places(&op), STAGED_PLACES);
    return chunks;
}

static void test_allreduce(void **state)
{
    const size_t counts[] = {5, FLOATS - 16, 0, 1, 3 * FLOATS + 7, FLOATS, 16, 0};
    enum { N = sizeof(counts) / sizeof(counts[0]) };
    struct coll_tensor tensors[N];
    for (unsigned i = 0; i < N; i++)
        tensors[i] = (struct coll_tensor){place(2 * i), place(2 * i + 1), counts[i]};
    /* Chunks: the first two tensors; the fourth (a whole chunk of the fifth does not fit beside
     * it); three of the fifth; its end; the sixth; the seventh. */
    assert_int_equal(cut_all(tensors, N), 1 + 1 + 3 + 1 + 1 + 1);
}

static void test_many(void **state)
{
    static struct coll_tensor tensors[STAGED_PIECES + 1];
    for (unsigned i = 0; i <= STAGED_PIECES; i++)
        tensors[i] = (struct coll_tensor){place(i), place(i), 10};
    assert_int_equal(cut_all(tensors, STAGED_PIECES), 1);
    assert_int_equal(cut_all(tensors, STAGED_PIECES + 1), 2);
}

/* An operation without elements still has one chunk, because all ranks take part in it. */
static void test_nothing(void **state)
{
    struct coll_tensor tensors[2] = {{NULL, NULL, 0}, {NULL, NULL, 0}};
    assert_int_equal(cut_all(tensors, 2), 1);
    assert_int_equal(chunk.n, 0);
}

/* Cuts an operation of another kind, which has one chunk, and returns its only piece. */
static const struct staged_piece *whole(enum hvd_kind kind, const struct coll_tensor *t, int root)
{
    static const size_t counts[] = {10, 20, 3000000};
    const struct coll_op op = {.kind = kind,
                               .dtype = HVD_FLOAT32,
                               .root = root,
                               .tensors = t,
                               .n = 1,
                               .send_counts = counts,
                               .recv_counts = counts};
    struct staged_cut cut = {.op = &op, .mesh = &mesh};
    assert_true(staged_cut_next(&cut, &chunk));
    assert_int_equal(chunk.n, 1);
    assert_int_equal(staged_places(&op), 1);
    assert_true(staged_room(&mesh, &op) >= chunk.in_size);
    assert_true(staged_room(&mesh, &op) >= chunk.out_end);
    assert_false(staged_cut_next(&cut, &chunk));
    return &chunk.pieces[0];
}

static void test_kinds(void **state)
{
    struct coll_tensor t = {place(0), place(1), 20};
    const struct staged_piece *p = whole(HVD_ALLGATHER, &t, 0);
    assert_int_equal(p->in_bytes, 80);
    assert_int_equal(p->out_bytes, 4 * 3000030);
    assert_int_equal(p->out_at, 128);
    p = whole(HVD_REDUCESCATTER, &t, 0);
    assert_int_equal(p->in_bytes, 80);
    assert_int_equal(p->out_bytes, 80);
    assert_int_equal(p->out_at, 128);
    p = whole(HVD_BROADCAST, &t, 0);
    assert_int_equal(p->in_bytes, 0);
    assert_int_equal(p->out_bytes, 80);
    p = whole(HVD_BROADCAST, &t, 1); /* this rank is not the root: it has an output */
    assert_int_equal(p->in_bytes, 80);
    assert_int_equal(p->out_bytes, 80);
    assert_int_equal(p->out_at, 0);
    t.out = place(0);
    p = whole(HVD_BROADCAST, &t, 1);
    assert_int_equal(p->out_bytes, 0);
}

/* Nothing is copied from the device where the inputs are in host memory, and nothing to it where
 * the outputs are. */
static void test_host_side(void **state)
{
    static const size_t counts[] = {10, 20, 30};
    const struct coll_tensor t = {place(0), place(1), 60};
    struct coll_op op = {.kind = HVD_ALLTOALL,
                         .dtype = HVD_FLOAT32,
                         .out_host = true,
                         .tensors = &t,
                         .n = 1,
                         .send_counts = counts,
                         .recv_counts = counts};
    const struct staged_piece *p = &chunk.pieces[0];
    struct staged_cut cut = {.op = &op, .mesh = &mesh};
    assert_true(staged_cut_next(&cut, &chunk));
    assert_int_equal(p->in_bytes, 240);
    assert_int_equal(p->out_bytes, 0);
    assert_ptr_equal(p->out, place(1));
    op = (struct coll_op){.kind = HVD_ALLGATHER,
                          .dtype = HVD_FLOAT32,
                          .in_host = true,
                          .tensors = &t,
                          .n = 1,
                          .recv_counts = counts};
    cut = (struct staged_cut){.op = &op, .mesh = &mesh};
    assert_true(staged_cut_next(&cut, &chunk));
    assert_int_equal(p->in_bytes, 0);
    assert_ptr_equal(p->in, place(0));
    assert_int_equal(p->out_bytes, 240);
    assert_int_equal(p->out_at, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce), cmocka_unit_test(test_many),
        cmocka_unit_test(test_nothing),   cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_host_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
