/* SPDX-License-Identifier: Apache-2.0
 *
 * enter_job: see enter_job.h.
 */
#include "tests/harness/enter_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

struct enter_board *enter_board;

int enter_job_wrong(int member, const char *what)
{
    printf("member %d: %s: %s\n", member, what, hvd_error());
    return 9;
}

/* The first operation after an admission. It is also the first one of a joiner that asked for
 * admission by it. */
static int first_operation(void)
{
    float x = 1;
    int64_t count = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("first", &x, &count);
    if (enter_board->how == BY_BROADCAST)
        return hvd_broadcast("first", &x, 1, HVD_FLOAT32, 0);
    if (enter_board->how == BY_BARRIER)
        return hvd_barrier("first");
    if (enter_board->how == BY_ALLREDUCE)
        return hvd_allreduce("first", &x, &x, 1, HVD_FLOAT32, HVD_SUM);
    if (enter_board->how != BY_SUBMIT)
        return 0;
    int rc = hvd_submit(&r, 1, &h);
    return rc < 0 ? rc : hvd_wait(h);
}

int enter_job_share(int64_t *step)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    hvd_world(&w);
    return hvd_broadcast("step", step, 1, HVD_INT64, w.source);
}

int enter_job_train(int member, int64_t step)
{
    uint64_t last = clock_ns();
    for (;; step++) {
        float x[2] = {1, (float)atomic_load(&enter_board->stop)};
        if (hvd_allreduce("sum", x, x, 2, HVD_FLOAT32, HVD_SUM) < 0)
            return enter_job_wrong(member, "sum");
        if (x[0] != (float)hvd_size())
            return printf("member %d: %g of %d\n", member, x[0], hvd_size()), 8;
        int rc = hvd_commit();
        if (rc < 0)
            return enter_job_wrong(member, "commit");
        if (rc == 1 && (first_operation() < 0 || enter_job_share(&step) < 0))
            return enter_job_wrong(member, "share");
        uint64_t now = clock_ns();
        if (member == 0) {
            atomic_store(&enter_board->at, (int)step);
            if (now - last > enter_board->longest)
                enter_board->longest = now - last;
        }
        last = now;
        if (x[1] > 0)
            return hvd_shutdown() < 0 ? enter_job_wrong(member, "shutdown") : 0;
        nap_ms(1);
    }
}

static int old(int member, void *arg)
{
    return hvd_init() < 0 ? enter_job_wrong(member, "init") : enter_job_train(member, 0);
}

int enter_job_go_on(int member)
{
    int64_t step = -1;
    int rc = enter_board->how == BY_COMMIT  ? hvd_commit() - 1
             : enter_board->how == BY_ENTER ? hvd_enter()
                                            : first_operation();
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    if (rc != 0)
        return enter_job_wrong(member, "coming in");
    hvd_world(&w);
    enter_board->entered_at = atomic_load(&enter_board->at);
    if (w.waiting || !w.is_new || w.rank != hvd_rank() || w.size != hvd_size())
        return enter_job_wrong(member, "a world that is not so");
    return enter_job_share(&step) < 0 ? enter_job_wrong(member, "state")
                                      : enter_job_train(member, step + 1);
}

bool enter_job_waits(struct elastic *job, void *arg)
{
    int member = *(const int *)arg;
    return job->members[member].waiting || job->members[member].over;
}

static bool moved_on(struct elastic *job, void *arg)
{
    return atomic_load(&enter_board->at) >= *(const int *)arg;
}

void enter_job_step(struct elastic *job, int steps)
{
    int to = atomic_load(&enter_board->at) + steps;
    assert_true(elastic_run(job, moved_on, &to, ENTER_LIMIT));
}

static bool published(struct elastic *job, void *arg)
{
    return job->publishes > *(const int *)arg;
}

void enter_job_change(struct elastic *job)
{
    int before = job->publishes;
    elastic_announce(job);
    assert_true(elastic_run(job, published, &before, ENTER_LIMIT));
    enter_job_step(job, 20);
}

void enter_job_begin(struct elastic *job, enum enter_how how)
{
    if (!enter_board)
        enter_board = world_shared(sizeof(*enter_board));
    memset(enter_board, 0, sizeof(*enter_board));
    enter_board->how = how;
    elastic_init(job);
    job->numbers = true;
    for (int m = 0; m < ENTER_OLD; m++)
        elastic_add(job, old, NULL, NULL);
    enter_job_step(job, 10);
}

void enter_job_end(struct elastic *job, unsigned mask)
{
    atomic_store(&enter_board->stop, 1);
    assert_true(elastic_run(job, elastic_all_over, NULL, ENTER_LIMIT));
    for (int m = 0; m < job->n; m++)
        if (!(mask & 1u << m))
            assert_int_equal(job->members[m].status, 0);
    elastic_fini(job);
}

void *enter_job_enter(void *arg)
{
    int *rc = arg;
    *rc = hvd_enter();
    return NULL;
}
