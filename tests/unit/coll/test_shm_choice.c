/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shm_choice: both ways of writing are tried and the cheaper one is kept; a change of the
 * machine is noticed; both seats write the same run in the same way.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/coll/shm_choice.h"

struct host {
    struct shm *shm[2];
    struct shm_choice choice[2];
};

static void host_init(struct host *h)
{
    uint8_t token[16];
    assert_int_equal(shm_create(2, token, &h->shm[0], NULL), 0);
    int fd = fcntl(h->shm[0]->fd, F_DUPFD_CLOEXEC, 3);
    assert_int_equal(shm_attach(fd, 1, 2, token, &h->shm[1], NULL), 0);
    for (int i = 0; i < 2; i++)
        shm_choice_init(&h->choice[i], h->shm[i]);
}

static void host_fini(struct host *h)
{
    shm_destroy(h->shm[0]);
    shm_destroy(h->shm[1]);
}

/* Returns how many of n runs were written past the cache. A run costs the given ns per KiB for
 * each way. */
static int run(struct host *h, uint32_t generation, size_t bytes, int n, const uint64_t cost[2])
{
    int far = 0;
    for (int i = 0; i < n; i++) {
        bool first = shm_choice_begin(&h->choice[0], generation, bytes);
        assert_int_equal(shm_choice_begin(&h->choice[1], generation, bytes), first);
        assert_false(shm_choice_timed(&h->choice[1]));
        if (shm_choice_timed(&h->choice[0]))
            h->choice[0].spent += cost[first] * (bytes / 1024);
        shm_choice_end(&h->choice[0]);
        shm_choice_end(&h->choice[1]);
        far += first;
    }
    return far;
}

static void test_choice(void **state)
{
    (void)state;
    static const uint64_t near_wins[] = {50, 100}, far_wins[] = {100, 50}, equal[] = {100, 99};
    struct host h;
    host_init(&h);
    assert_in_range(run(&h, 1, 1 << 20, 100, near_wins), 3, 10);
    assert_in_range(run(&h, 1, 1 << 20, 1000, near_wins), 10, 100);
    assert_in_range(run(&h, 1, 1 << 20, 1000, far_wins), 800, 990);
    assert_in_range(run(&h, 1, 1 << 20, 1000, near_wins), 10, 200);
    assert_in_range(run(&h, 1, 1 << 20, 1000, equal), 10,
                    100); /* the costs are too close for a change */
    /* Another order of size has a choice of its own; small runs never write past the cache. */
    assert_in_range(run(&h, 1, 100 << 10, 1000, far_wins), 800, 999);
    assert_int_equal(run(&h, 1, 1000, 1000, far_wins), 0);
    host_fini(&h);
}

/* A run was cancelled after only one seat had begun it: in the new generation both seats choose
 * alike again. */
static void test_generation(void **state)
{
    (void)state;
    static const uint64_t far_wins[] = {100, 50};
    struct host h;
    host_init(&h);
    run(&h, 1, 8 << 20, 50, far_wins);
    shm_choice_begin(&h.choice[1], 1, 8 << 20);
    assert_in_range(run(&h, 2, 8 << 20, 200, far_wins), 150, 199);
    host_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
