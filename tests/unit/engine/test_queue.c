/* SPDX-License-Identifier: Apache-2.0
 *
 * queue and ids: slots from submit to release.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/ids.h"
#include "core/engine/queue.h"

static float data[64];
static const int64_t four = 4;

static struct hvd_request request(const char *name)
{
    return (struct hvd_request){.kind = HVD_ALLREDUCE,
                                .name = name,
                                .input = data,
                                .output = data,
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = &four,
                                .op = HVD_SUM,
                                .device = -1};
}

static struct queue *new_queue(void)
{
    struct queue *q = NULL;
    assert_int_equal(queue_create(1, 3, 100, &q, NULL), 0);
    return q;
}

static void test_way_of_a_slot(void **state)
{
    struct queue *q = new_queue();
    struct err err = {0};
    hvd_handle h;
    struct hvd_request r = request("a");
    assert_false(queue_has_new(q));
    assert_int_equal(queue_submit(q, &r, 1, 7, &h, &err), 0);
    assert_true(h > 0);
    assert_true(queue_has_new(q));
    struct slot *s = queue_take(q);
    assert_non_null(s);
    assert_null(s->next);
    assert_null(queue_take(q));
    assert_ptr_equal(queue_find(q, h), s);
    assert_string_equal(s->name, "a");
    assert_int_equal(s->facts.count, 4);
    assert_int_equal(s->submit_ns, 7);
    assert_int_equal(s->done, 0);
    queue_finish(q, s, NULL);
    assert_int_equal(s->done, 1);
    assert_int_equal(s->status, 0);
    assert_int_equal(queue_release(q, s, h), 0);
    assert_null(queue_find(q, h));
    assert_int_equal(queue_release(q, s, h), -EINVAL);
    queue_destroy(q);
}

static void test_names(void **state)
{
    struct queue *q = new_queue();
    struct err err = {0};
    hvd_handle h, again;
    struct hvd_request r = request("a"), unnamed = request(NULL);
    assert_int_equal(queue_submit(q, &r, 1, 0, &h, &err), 0);
    assert_int_equal(queue_submit(q, &r, 1, 0, &again, &err), -EEXIST);
    assert_non_null(strstr(err.msg, "a:"));
    /* A finished operation frees its name; it need not be released. */
    queue_finish(q, queue_take(q), NULL);
    assert_int_equal(queue_submit(q, &r, 1, 0, &again, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(queue_submit(q, &unnamed, 1, 0, &h, &err), 0);
    struct slot *s = queue_take(q)->next;
    assert_string_equal(s->name, "allreduce.noname.0");
    assert_string_equal(s->next->next->name, "allreduce.noname.2");
    queue_destroy(q);
}

static void test_group_is_all_or_nothing(void **state)
{
    struct queue *q = new_queue();
    struct err err = {0};
    struct hvd_request r[3] = {request("a"), request(NULL), request("c")};
    hvd_handle h[3];
    r[2].dtype = (enum hvd_dtype)99;
    assert_int_equal(queue_submit(q, r, 3, 0, h, &err), -EINVAL);
    assert_false(queue_has_new(q));
    assert_null(queue_take(q));
    r[2].dtype = HVD_INT32;
    assert_int_equal(queue_submit(q, r, 3, 0, h, &err), 0);
    struct slot *s = queue_take(q);
    assert_string_equal(s->next->name, "allreduce.noname.0");
    for (uint32_t i = 0; i < 3; i++, s = s->next) {
        assert_int_equal(s->facts.sig.group_size, 3);
        assert_int_equal(s->facts.sig.group_index, i);
        assert_true(s->facts.sig.group_hash != 0);
    }
    queue_destroy(q);
}

static void test_fail_all(void **state)
{
    struct queue *q = new_queue();
    struct err err;
    hvd_handle h[2];
    struct hvd_request a = request("a"), b = request("b");
    assert_int_equal(queue_submit(q, &a, 1, 0, &h[0], NULL), 0);
    queue_take(q);
    assert_int_equal(queue_submit(q, &b, 1, 0, &h[1], NULL), 0);
    err_set(&err, ECONNRESET, "rank 2 is gone");
    queue_fail_all(q, &err);
    assert_false(queue_has_new(q));
    for (int i = 0; i < 2; i++) {
        struct slot *s = queue_find(q, h[i]);
        assert_int_equal(s->done, 1);
        assert_int_equal(s->status, -ECONNRESET);
        assert_string_equal(s->text, "rank 2 is gone");
        assert_int_equal(queue_release(q, s, h[i]), 0);
    }
    queue_destroy(q);
}

/* Only one caller waits for a handle. A handle of the slot's earlier operation claims nothing. */
static void test_claim(void **state)
{
    struct queue *q = new_queue();
    hvd_handle h, next;
    struct hvd_request r = request("a");
    assert_int_equal(queue_submit(q, &r, 1, 0, &h, NULL), 0);
    struct slot *s = queue_find(q, h);
    assert_true(queue_claim(s, h));
    assert_false(queue_claim(s, h));
    queue_unclaim(s, h);
    assert_true(queue_claim(s, h));
    queue_finish(q, queue_take(q), NULL);
    assert_int_equal(queue_release(q, s, h), 0);
    assert_false(queue_claim(s, h));
    assert_int_equal(queue_submit(q, &r, 1, 0, &next, NULL), 0);
    assert_ptr_equal(queue_find(q, next), s);
    assert_false(queue_claim(s, h));
    assert_true(queue_claim(s, next));
    queue_destroy(q);
}

static void *await_open(void *arg)
{
    queue_await_open(arg);
    return NULL;
}

/* At the end of an epoch its operations fail, the engine's own stay, and no request is accepted
 * until the next epoch begins. */
static void test_end_of_a_world(void **state)
{
    struct queue *q = new_queue();
    struct err err, why;
    hvd_handle taken, own, fresh, h;
    struct hvd_request a = request("a"), b = request("b"), c = request("c");
    queue_lock(q);
    queue_set_world(q, 7, 1, 3, true);
    queue_unlock(q);
    assert_int_equal(queue_submit(q, &a, 1, 0, &taken, NULL), 0);
    queue_take(q);
    assert_int_equal(queue_submit_own(q, &b, true, 0, &own, NULL), 0);
    assert_int_equal(queue_submit(q, &c, 1, 0, &fresh, NULL), 0);
    assert_int_equal(queue_find(q, fresh)->facts.sig.world, 7);
    err_set(&why, ESTALE, "another world");
    queue_end_world(q, &why);
    const hvd_handle ended[] = {taken, fresh};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queue_find(q, ended[i])->done, 1);
        assert_int_equal(queue_find(q, ended[i])->status, -ESTALE);
    }
    struct slot *s = queue_find(q, own);
    assert_false(s->done);
    assert_true(s->last);
    assert_int_equal(queue_submit(q, &a, 1, 0, &h, &err), -ESTALE);
    assert_ptr_equal(queue_take(q), s);
    assert_null(s->next);
    assert_false(queue_has_new(q));
    assert_int_equal(queue_submit_own(q, &c, false, 0, &h, NULL), 0);
    assert_ptr_equal(queue_take(q), queue_find(q, h));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, await_open, q), 0);
    queue_lock(q);
    queue_set_world(q, 8, 0, 5, true);
    queue_unlock(q);
    pthread_join(thread, NULL);
    a.epoch = 7;
    assert_int_equal(queue_submit(q, &a, 1, 0, &h, &err), -ESTALE);
    a.epoch = 8;
    assert_int_equal(queue_submit(q, &a, 1, 0, &h, &err), 0);
    assert_int_equal(queue_find(q, h)->ranks, 5);
    queue_destroy(q);
}

/* An operation of a set, which the driver has taken. */
static struct slot *submit_in(struct queue *q, int set, const char *name)
{
    hvd_handle h;
    struct hvd_request r = request(name);
    r.set = set;
    assert_int_equal(queue_submit(q, &r, 1, 0, &h, NULL), 0);
    struct slot *s = queue_take(q);
    assert_ptr_equal(s, queue_find(q, h));
    s->state = SLOT_NEGOTIATING;
    return s;
}

static struct slot *send_in(struct queue *q, int set)
{
    hvd_handle h;
    const struct hvd_message m = {.direction = HVD_SEND,
                                  .peer = 0,
                                  .tag = 1,
                                  .set = set,
                                  .device = -1,
                                  .data = data,
                                  .bytes = 8};
    assert_int_equal(queue_submit_messages(q, &m, 1, &h, NULL), 0);
    struct slot *s = queue_take(q);
    assert_ptr_equal(s, queue_find(q, h));
    s->state = SLOT_BATCHED;
    return s;
}

/* Ranks come to a set in world 8. What was submitted before to the old members alone ends. */
static void test_end_stale(void **state)
{
    struct queue *q = new_queue();
    struct err why;
    hvd_handle own, inbox;
    struct hvd_request a = request("own"), b = request("inbox");
    (void)state;
    a.set = b.set = 3;
    for (int set = 3; set <= 4; set++) {
        assert_int_equal(queue_add_set(q, set, 1, 3, NULL), 0);
        queue_open_set(q, set);
    }
    queue_lock(q);
    queue_set_world(q, 7, 1, 3, true);
    queue_unlock(q);
    struct slot *stale = submit_in(q, 3, "stale"), *batched = submit_in(q, 3, "batched");
    struct slot *other = submit_in(q, 4, "other"), *world = submit_in(q, 0, "world");
    struct slot *message = send_in(q, 3);
    batched->state = SLOT_BATCHED;
    assert_int_equal(queue_submit_own(q, &a, false, 0, &own, NULL), 0);
    queue_take(q)->state = SLOT_NEGOTIATING;
    queue_lock(q);
    queue_set_world(q, 8, 1, 3, true);
    queue_unlock(q);
    struct slot *fresh = submit_in(q, 3, "fresh");
    queue_lock(q);
    queue_set_world(q, 7, 1, 3, true);
    queue_unlock(q);
    assert_int_equal(queue_submit(q, &b, 1, 0, &inbox, NULL), 0);
    err_set(&why, EOWNERDEAD, "ranks have come");
    queue_end_stale(q, 3, 8, &why);
    const struct slot *ended[] = {stale, batched};
    for (int i = 0; i < 2; i++) {
        assert_true(ended[i]->done);
        assert_int_equal(ended[i]->status, -EOWNERDEAD);
        assert_string_equal(ended[i]->text, "ranks have come");
    }
    const struct slot *stay[] = {
        other, world, message, fresh, queue_find(q, own), queue_find(q, inbox)};
    for (int i = 0; i < 6; i++)
        assert_false(stay[i]->done);
    assert_int_equal(queue_pending(q, 3), 4);
    queue_destroy(q);
}

/* The next world has begun, but the ranks do not know the same sets yet: requests wait. */
static void test_world_that_is_closed(void **state)
{
    struct queue *q = new_queue();
    struct err err;
    hvd_handle h;
    struct hvd_request a = request("a"), b = request("b");
    (void)state;
    queue_lock(q);
    queue_set_world(q, 7, 0, 3, false);
    queue_unlock(q);
    assert_int_equal(queue_submit(q, &a, 1, 0, &h, &err), -ESTALE);
    assert_int_equal(queue_submit_own(q, &b, false, 0, &h, NULL), 0);
    queue_open(q);
    queue_await_open(q);
    assert_int_equal(queue_submit(q, &a, 1, 0, &h, &err), 0);
    queue_destroy(q);
}

/* A thousand steps with the same ten tensors allocate only in the first one. */
static void test_steady_state_allocates_nothing(void **state)
{
    struct queue *q = new_queue();
    hvd_handle h[10], last = 0;
    uint64_t allocations = 0;
    for (int k = 0; k < 1000; k++) {
        for (int i = 0; i < 10; i++) {
            char name[8];
            snprintf(name, sizeof(name), "t%d", i);
            struct hvd_request r = request(name);
            assert_int_equal(queue_submit(q, &r, 1, 0, &h[i], NULL), 0);
            assert_true(h[i] > last);
        }
        for (struct slot *s = queue_take(q), *next; s; s = next) {
            next = s->next;
            queue_finish(q, s, NULL);
        }
        for (int i = 0; i < 10; i++) {
            last = h[i] > last ? h[i] : last;
            assert_int_equal(queue_release(q, queue_find(q, h[i]), h[i]), 0);
        }
        last = 0;
        if (k == 0)
            allocations = q->allocations;
    }
    assert_int_equal(q->allocations, allocations);
    queue_destroy(q);
}

static void test_many(void **state)
{
    struct queue *q = new_queue();
    enum { MANY = 3000 };
    static hvd_handle h[MANY];
    struct hvd_request r = request(NULL);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(queue_submit(q, &r, 1, 0, &h[i], NULL), 0);
    for (int i = 0; i < MANY; i++)
        assert_non_null(queue_find(q, h[i]));
    assert_null(queue_find(q, h[0] + 1));
    assert_null(queue_find(q, 0));
    assert_null(queue_find(q, -1));
    assert_null(queue_find(q, INT64_MAX));
    queue_destroy(q);
}

static void test_ids(void **state)
{
    struct ids ids = {0};
    struct slot *slots = calloc(3000, sizeof(*slots));
    assert_null(ids_get(&ids, 5));
    ids_remove(&ids, 5, slots);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(ids_put(&ids, i << 32 | 7, &slots[i]), 0);
    for (uint64_t i = 0; i < 3000; i += 3)
        ids_remove(&ids, i << 32 | 7, &slots[i]);
    for (uint64_t i = 0; i < 3000; i++)
        assert_ptr_equal(ids_get(&ids, i << 32 | 7), i % 3 ? &slots[i] : NULL);
    /* An id of another slot is not removed. */
    ids_remove(&ids, 1ULL << 32 | 7, &slots[0]);
    assert_ptr_equal(ids_get(&ids, 1ULL << 32 | 7), &slots[1]);
    assert_int_equal(ids_put(&ids, 1ULL << 32 | 7, &slots[9]), 0);
    assert_ptr_equal(ids_get(&ids, 1ULL << 32 | 7), &slots[9]);
    assert_int_equal(ids.count, 2000);
    ids_fini(&ids);
    free(slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_way_of_a_slot),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_group_is_all_or_nothing),
        cmocka_unit_test(test_fail_all),
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_end_of_a_world),
        cmocka_unit_test(test_end_stale),
        cmocka_unit_test(test_world_that_is_closed),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
