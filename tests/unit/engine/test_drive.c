/* SPDX-License-Identifier: Apache-2.0
 *
 * drive: a driver that finds no work first spins if a result is expected soon, and otherwise yields
 * its processor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/coll/algorithm.h"
#include "core/engine/drive.h"
#include "core/engine/engine.h"
#include "core/transport/shm.h"

static struct shm shm;
static struct mesh mesh;
static struct coll coll;
static struct engine engine = {.circle = {.engine = &engine, .mesh = &mesh, .coll = &coll}};

/* shared: other ranks run on this host. */
static struct engine *rank(bool spin, bool shared, enum coll_wait wait)
{
    messages_gpu_init(&engine);
    engine.circle.spin = spin;
    mesh.shm = shared ? &shm : NULL;
    coll.wait = wait;
    return &engine;
}

static bool spins(bool spin, bool shared, enum coll_wait wait)
{
    struct spin_state p = {0};
    assert_true(drive_pause(rank(spin, shared, wait), &p));
    return p.yields == 0;
}

static void test_who_spins(void **state)
{
    assert_true(spins(true, true, COLL_WAKES));
    assert_true(spins(true, true, COLL_MOVES));
    assert_true(spins(true, true, COLL_ASKS));
    /* alone on its host: the driver spins for a device, not for the network */
    assert_true(spins(true, false, COLL_ASKS));
    assert_false(spins(true, false, COLL_WAKES));
    assert_false(spins(true, false, COLL_MOVES));
    for (int wait = COLL_WAKES; wait <= COLL_ASKS; wait++) {
        assert_false(spins(false, true, (enum coll_wait)wait));
        assert_false(spins(false, false, (enum coll_wait)wait));
    }
}

/* After spinning, the driver yields a few times; then it must sleep. */
static void test_until_when(void **state)
{
    struct spin_state p = {0};
    struct engine *e = rank(true, false, COLL_ASKS);
    uint64_t begin = clock_ns(), spun = 0;
    while (drive_pause(e, &p))
        spun = p.yields == 0 ? clock_ns() - begin : spun;
    assert_in_range(clock_ns() - begin, 2 * CLOCK_MS, UINT64_MAX);
    assert_in_range(spun, 1, UINT64_MAX);
    assert_int_equal(p.yields, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_spins),
        cmocka_unit_test(test_until_when),
    };
    return cmocka_run_group_tests_name("engine/drive", tests, NULL, NULL);
}
