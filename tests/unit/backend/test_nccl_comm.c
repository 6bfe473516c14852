/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_comm: the table of states, the calls that each phase refuses, an id that does not come, and
 * a failed device. NCCL is a set of functions in this file; tests/multi/test_nccl* run it with
 * several ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"

/* ---- the table ---- */

static const struct nccl_row *find(enum nccl_phase phase, enum nccl_event event)
{
    size_t n;
    const struct nccl_row *rows = nccl_comm_rows(&n), *found = NULL;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].phase == phase && rows[i].event == event) {
            assert_null(found); /* at most one row for a phase and an event */
            found = &rows[i];
        }
    }
    return found;
}

static void test_every_wait_ends(void **state)
{
    static const enum nccl_phase waits[] = {NCCL_ID, NCCL_INIT, NCCL_LAUNCH};
    for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
        assert_non_null(find(waits[i], NCCL_ON_DONE));
        assert_non_null(find(waits[i], NCCL_ON_ERROR));
    }
    assert_int_equal(find(NCCL_ABORT, NCCL_ON_DONE)->next, NCCL_NONE);
    for (int p = 0; p < NCCL_PHASES; p++) {
        bool ends = p == NCCL_NONE || p == NCCL_ABORT;
        const struct nccl_row *stop = find((enum nccl_phase)p, NCCL_ON_STOP);
        assert_int_equal(stop == NULL, ends);
        assert_true(!stop || stop->next == NCCL_ABORT);
    }
}

static void test_all_are_reached(void **state)
{
    bool reached[NCCL_PHASES] = {[NCCL_NONE] = true};
    size_t n;
    const struct nccl_row *rows = nccl_comm_rows(&n);
    for (int round = 0; round < NCCL_PHASES; round++) {
        for (size_t i = 0; i < n; i++)
            reached[rows[i].next] = reached[rows[i].next] || reached[rows[i].phase];
    }
    for (int p = 0; p < NCCL_PHASES; p++)
        assert_true(reached[p]);
    /* a failed communicator never becomes ready: it must be aborted and started again */
    for (size_t i = 0; i < n; i++)
        assert_false(rows[i].phase == NCCL_FAILED && rows[i].next == NCCL_READY);
}

/* ---- a world of one, with an NCCL whose answers the test sets ---- */

static struct {
    int id, init, async, issue;
    int aborts;
    int bind;    /* result of the callback in struct nccl_host */
    int id_ms;   /* how long an id takes */
    bool blocks; /* the configuration file has NCCL_COMM_BLOCKING=1 */
} g;

static struct ncclComm *const g_handle = (struct ncclComm *)&g;

static int get_id(struct nccl_abi_id *id)
{
    memset(id, 7, sizeof(*id));
    nap_ms(g.id_ms);
    return g.id;
}

static int init(struct ncclComm **comm, int size, struct nccl_abi_id id, int rank,
                struct nccl_abi_config *config)
{
    *comm = g.init == 0 ? g_handle : NULL;
    if (g.blocks)
        setenv("NCCL_COMM_BLOCKING", "1", 1);
    return config->blocking == 0 && id.internal[5] == 7 ? g.init : NCCL_ABI_INVALID_ARGUMENT;
}

static int async_error(struct ncclComm *comm, int *error)
{
    *error = g.async;
    return 0;
}

static int abort_it(struct ncclComm *comm)
{
    g.aborts++;
    return 0;
}

static int all_reduce(const void *in, void *out, size_t count, int type, int op,
                      struct ncclComm *comm, struct CUstream_st *stream)
{
    return g.issue;
}

static const char *words(int result)
{
    return result == NCCL_ABI_CUDA_ERROR ? "cuda trouble" : "trouble";
}

static const char *last_error(struct ncclComm *comm)
{
    return "";
}

static const struct nccl_api api = {.ncclGetUniqueId = get_id,
                                    .ncclCommInitRankConfig = init,
                                    .ncclCommGetAsyncError = async_error,
                                    .ncclCommAbort = abort_it,
                                    .ncclAllReduce = all_reduce,
                                    .ncclGetErrorString = words,
                                    .ncclGetLastError = last_error,
                                    .version = 22707,
                                    .text = "2.27.7",
                                    .path = "/lib/libnccl.so.2"};

static int bind_gpu(void *ctx)
{
    return g.bind;
}

#define LONG_MS 10000 /* a limit that no case with it reaches */

static struct nccl_comm *create(int init_ms, int launch_ms)
{
    const struct nccl_host host = {.bind = bind_gpu};
    const struct nccl_limits limits = {
        .init_ms = init_ms, .launch_ms = launch_ms, .abort_ms = LONG_MS};
    struct nccl_comm *c = NULL;
    memset(&g, 0, sizeof(g));
    assert_int_equal(nccl_comm_create(&api, &host, &limits, &c, NULL), 0);
    return c;
}

static int drive(struct nccl_comm *c, struct err *err)
{
    uint64_t deadline = deadline_in_ms(2 * LONG_MS);
    int rc;
    while ((rc = nccl_comm_progress(c, err)) == 1 && !deadline_passed(deadline))
        nap_ms(1);
    return rc;
}

static int wait_id(struct nccl_comm *c, struct nccl_abi_id *id, struct err *err)
{
    uint64_t deadline = deadline_in_ms(2 * LONG_MS);
    int rc;
    while ((rc = nccl_comm_id(c, 2, id, err)) == 1 && !deadline_passed(deadline))
        nap_ms(1);
    return rc;
}

static int begin(struct nccl_comm *c, struct err *err)
{
    struct nccl_abi_id id;
    memset(&id, 7, sizeof(id));
    return nccl_comm_start(c, 0, 1, &id, err);
}

static void test_good(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct err err = {0};
    assert_int_equal(nccl_comm_progress(c, &err), -ENOTCONN);
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(begin(c, &err), -EBUSY);
    assert_int_equal(drive(c, &err), 0);
    assert_int_equal(nccl_comm_phase(c), NCCL_READY);
    assert_true(nccl_comm_destroy(c));
    assert_int_equal(g.aborts, 1);
    assert_true(nccl_comm_destroy(NULL));
}

static void test_too_early(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct nccl_step step = {.verb = NCCL_ALLREDUCE, .count = 1};
    struct nccl_steps steps = {.form = {.factor = 1}, .v = &step, .n = 1};
    struct err err = {0};
    assert_int_equal(nccl_comm_launch(c, &steps, NULL, &err), -EBUSY);
    nccl_comm_abort(c); /* there is no communicator: no effect */
    assert_int_equal(nccl_comm_phase(c), NCCL_NONE);
    assert_true(nccl_comm_destroy(c));
    assert_int_equal(g.aborts, 0);
}

static void test_id(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct nccl_abi_id id = {{0}};
    struct err err = {0};
    assert_int_equal(wait_id(c, &id, &err), 0);
    assert_int_equal(id.internal[5], 7);
    assert_int_equal(nccl_comm_start(c, 0, 1, &id, &err), 0);
    assert_int_equal(nccl_comm_id(c, 1, &id, &err), -EBUSY);
    assert_int_equal(drive(c, &err), 0);
    assert_true(nccl_comm_destroy(c));
}

static void test_no_id(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct nccl_abi_id id;
    struct err err = {0};
    g.id = NCCL_ABI_SYSTEM_ERROR;
    assert_int_equal(wait_id(c, &id, &err), -EIO);
    assert_string_equal(err.msg, "NCCL 2.27.7 (/lib/libnccl.so.2), rank 0 of 2: ncclGetUniqueId: "
                                 "trouble");
    assert_int_equal(wait_id(c, &id, &err), -EIO); /* the error stays */
    nccl_comm_abort(c);
    assert_int_equal(drive(c, &err), -ENOTCONN);
    g.id = 0;
    assert_int_equal(wait_id(c, &id, &err), 0); /* until it is aborted */
    assert_true(nccl_comm_destroy(c));
    assert_int_equal(g.aborts, 0);
}

static void test_late_id(void **state)
{
    struct nccl_comm *c = create(100, LONG_MS);
    struct nccl_abi_id id;
    struct err err = {0};
    g.id_ms = 300;
    uint64_t begun = clock_ns();
    assert_int_equal(wait_id(c, &id, &err), -ETIMEDOUT);
    assert_true(clock_ns() - begun >= 100 * CLOCK_MS);
    assert_non_null(strstr(err.msg, "ncclGetUniqueId did not end in time"));
    assert_true(nccl_comm_destroy(c)); /* waits for the call */
}

static void test_no_device(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct err err = {0};
    g.bind = -ENODEV;
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(drive(c, &err), -EIO);
    assert_non_null(strstr(err.msg, "ncclCommInitRankConfig: cuda trouble"));
    assert_true(nccl_comm_destroy(c));
}

static void test_blocking(void **state)
{
    static const char *const values[] = {"1", "2", "0", ""};
    struct nccl_comm *c = NULL;
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        setenv("NCCL_COMM_BLOCKING", values[i], 1);
        assert_int_equal(nccl_comm_create(&api, &(struct nccl_host){0},
                                          &(struct nccl_limits)NCCL_LIMITS_DEFAULT, &c, &err),
                         -ENOTSUP);
        assert_non_null(strstr(err.msg, "NCCL_COMM_BLOCKING="));
        assert_non_null(strstr(err.msg, "NCCL 2.27.7 (/lib/libnccl.so.2)"));
    }
    for (int i = 2; i < 4; i++) {
        setenv("NCCL_COMM_BLOCKING", values[i], 1);
        assert_true(nccl_comm_destroy(create(LONG_MS, LONG_MS)));
    }
    unsetenv("NCCL_COMM_BLOCKING");
    c = create(LONG_MS, LONG_MS);
    g.blocks = true;
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(drive(c, &err), -ENOTSUP);
    assert_non_null(strstr(err.msg, "configuration file"));
    assert_true(nccl_comm_destroy(c));
    assert_int_equal(g.aborts, 1);
    unsetenv("NCCL_COMM_BLOCKING");
}

/* A failed communicator is aborted, and can then be started again. */
static void test_again(void **state)
{
    struct nccl_comm *c = create(LONG_MS, LONG_MS);
    struct err err = {0};
    g.async = NCCL_ABI_REMOTE_ERROR;
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(drive(c, &err), -ECONNRESET);
    assert_int_equal(begin(c, &err), -EBUSY);
    nccl_comm_abort(c);
    nccl_comm_abort(c);
    assert_int_equal(drive(c, &err), -ENOTCONN);
    assert_int_equal(nccl_comm_phase(c), NCCL_NONE);
    assert_int_equal(g.aborts, 1);
    g.async = 0;
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(drive(c, &err), 0);
    assert_true(nccl_comm_destroy(c));
}

static void test_launch(void **state)
{
    struct nccl_comm *c = create(LONG_MS, 100);
    struct nccl_step step = {.verb = NCCL_ALLREDUCE, .count = 1};
    struct nccl_steps steps = {.form = {.factor = 1}, .v = &step, .n = 1}, none = {.n = 0};
    struct err err = {0};
    assert_int_equal(begin(c, &err), 0);
    assert_int_equal(drive(c, &err), 0);
    assert_int_equal(nccl_comm_launch(c, &none, NULL, &err), 0);
    assert_int_equal(nccl_comm_phase(c), NCCL_READY);
    g.async = NCCL_ABI_IN_PROGRESS;
    g.issue = NCCL_ABI_IN_PROGRESS;
    assert_int_equal(nccl_comm_launch(c, &steps, NULL, &err), 0);
    assert_int_equal(nccl_comm_launch(c, &steps, NULL, &err), -EBUSY);
    assert_int_equal(drive(c, &err), -ETIMEDOUT); /* NCCL reports "in progress" for ever */
    assert_non_null(strstr(err.msg, "ncclAllReduce did not end in time"));
    assert_true(nccl_comm_destroy(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_wait_ends),
        cmocka_unit_test(test_all_are_reached),
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_too_early),
        cmocka_unit_test(test_id),
        cmocka_unit_test(test_no_id),
        cmocka_unit_test(test_late_id),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_blocking),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_launch),
    };
    return cmocka_run_group_tests_name("backend/nccl_comm", tests, NULL, NULL);
}
