/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that joins while others train: they go on until it is ready, whatever becomes of it
 * before; what every function of hvd.h answers meanwhile; every call that lets it in.
 *
 * timeout: 300
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define OLD     2     /* members that train from the beginning */
#define LIMIT   60000 /* ms that a test waits for anything */
#define GOES_ON 50    /* steps of the others while one starts up */

enum how { BY_ENTER, BY_SUBMIT, BY_ALLREDUCE, BY_BROADCAST, BY_BARRIER, BY_COMMIT, HOWS };

/* What the members share. */
struct board {
    _Atomic int at; /* the step in which member 0 is */
    _Atomic int stop;
    _Atomic int said[ELASTIC_MAX]; /* the joiner has come to where the test waits for it */
    enum how how;
    int hello_at, entered_at;
    uint64_t longest; /* ns between two steps of member 0 */
};

static struct board *board;

static int wrong(int member, const char *what)
{
    printf("member %d: %s: %s\n", member, what, hvd_error());
    return 9;
}

/* The first operation after somebody has joined: for one that has come by it, it is the first. */
static int first_operation(void)
{
    float x = 1;
    int64_t count = 1;
    hvd_handle h;
    struct hvd_request r = rank_request("first", &x, &count);
    if (board->how == BY_BROADCAST)
        return hvd_broadcast("first", &x, 1, HVD_FLOAT32, 0);
    if (board->how == BY_BARRIER)
        return hvd_barrier("first");
    if (board->how == BY_ALLREDUCE)
        return hvd_allreduce("first", &x, &x, 1, HVD_FLOAT32, HVD_SUM);
    if (board->how != BY_SUBMIT)
        return 0;
    int rc = hvd_submit(&r, 1, &h);
    return rc < 0 ? rc : hvd_wait(h);
}

static int share(int64_t *step)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    hvd_world(&w);
    return hvd_broadcast("step", step, 1, HVD_INT64, w.source);
}

/* Until all have seen that it is to stop. */
static int train(int member, int64_t step)
{
    uint64_t last = clock_ns();
    for (;; step++) {
        float x[2] = {1, (float)atomic_load(&board->stop)};
        if (hvd_allreduce("sum", x, x, 2, HVD_FLOAT32, HVD_SUM) < 0)
            return wrong(member, "sum");
        if (x[0] != (float)hvd_size())
            return printf("member %d: %g of %d\n", member, x[0], hvd_size()), 8;
        int rc = hvd_commit();
        if (rc < 0)
            return wrong(member, "commit");
        if (rc == 1 && (first_operation() < 0 || share(&step) < 0))
            return wrong(member, "share");
        uint64_t now = clock_ns();
        if (member == 0) {
            atomic_store(&board->at, (int)step);
            if (now - last > board->longest)
                board->longest = now - last;
        }
        last = now;
        if (x[1] > 0)
            return hvd_shutdown() < 0 ? wrong(member, "shutdown") : 0;
        nap_ms(1);
    }
}

static int old(int member, void *arg)
{
    return hvd_init() < 0 ? wrong(member, "init") : train(member, 0);
}

/* In, and the state is there. */
static int go_on(int member)
{
    int64_t step = -1;
    int rc = board->how == BY_COMMIT  ? hvd_commit() - 1
             : board->how == BY_ENTER ? hvd_enter()
                                      : first_operation();
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    if (rc != 0)
        return wrong(member, "coming in");
    hvd_world(&w);
    board->entered_at = atomic_load(&board->at);
    if (w.waiting || !w.is_new || w.rank != hvd_rank() || w.size != hvd_size())
        return wrong(member, "a world that is not so");
    return share(&step) < 0 ? wrong(member, "state") : train(member, step + 1);
}

static bool said(struct elastic *job, void *arg)
{
    int member = *(const int *)arg;
    return atomic_load(&board->said[member]) || job->members[member].over;
}

static bool waits(struct elastic *job, void *arg)
{
    int member = *(const int *)arg;
    return job->members[member].waiting || job->members[member].over;
}

static bool moved_on(struct elastic *job, void *arg)
{
    return atomic_load(&board->at) >= *(const int *)arg;
}

static void others_step(struct elastic *job, int steps)
{
    int to = atomic_load(&board->at) + steps;
    assert_true(elastic_run(job, moved_on, &to, LIMIT));
}

/* A job of OLD members that train. */
static void begin(struct elastic *job, enum how how)
{
    if (!board)
        board = world_shared(sizeof(*board));
    memset(board, 0, sizeof(*board));
    board->how = how;
    elastic_init(job);
    job->places = true;
    for (int m = 0; m < OLD; m++)
        elastic_add(job, old, NULL, NULL);
    others_step(job, 10);
}

/* All end well but those of mask. */
static void end(struct elastic *job, unsigned mask)
{
    atomic_store(&board->stop, 1);
    assert_true(elastic_run(job, elastic_all_over, NULL, LIMIT));
    for (int m = 0; m < job->n; m++)
        if (!(mask & 1u << m))
            assert_int_equal(job->members[m].status, 0);
    elastic_fini(job);
}

/* ---- they go on ----------------------------------------------------------------------------- */

static int slow_joiner(int member, void *arg)
{
    if (hvd_init() < 0)
        return wrong(member, "init");
    board->hello_at = atomic_load(&board->at);
    for (int ms = 0; atomic_load(&board->at) < board->hello_at + GOES_ON && ms < LIMIT; ms++)
        nap_ms(1);
    return go_on(member);
}

static void test_others_go_on(void **state)
{
    struct elastic job;
    int member;
    begin(&job, BY_ENTER);
    member = elastic_add(&job, slow_joiner, NULL, NULL);
    assert_true(elastic_run(&job, waits, &member, LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    assert_int_equal(job.publishes, 2);
    assert_true(board->entered_at - board->hello_at >= GOES_ON);
    printf("%d steps from hello to being in; longest pause of member 0: %.1f ms\n",
           board->entered_at - board->hello_at, (double)board->longest / CLOCK_MS);
    end(&job, 0);
}

/* Those that are ready come in; one that takes its time holds nobody up. */
static int very_slow_joiner(int member, void *arg)
{
    if (hvd_init() < 0)
        return wrong(member, "init");
    while (!atomic_load(&board->said[OLD]))
        nap_ms(1);
    return go_on(member);
}

static void test_one_is_ready_before_the_other(void **state)
{
    struct elastic job;
    int slow, quick;
    begin(&job, BY_ENTER);
    slow = elastic_add(&job, very_slow_joiner, NULL, NULL);
    quick = elastic_add(&job, slow_joiner, NULL, NULL);
    assert_true(elastic_run(&job, waits, &quick, LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    assert_true(job.members[quick].active && job.members[slow].arrived);
    atomic_store(&board->said[slow], 1);
    assert_true(elastic_run(&job, waits, &slow, LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    assert_true(job.members[slow].active);
    assert_int_equal(job.publishes, 3);
    end(&job, 0);
}

/* ---- what is answered meanwhile ------------------------------------------------------------- */

static int check_world(void)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    return hvd_world(&w) == 0 && w.waiting && w.is_new && w.elastic && w.epoch == 1 &&
           w.rank == OLD && w.size == OLD + 1 && w.source == 0 && w.joined == 0 && w.left == 0 &&
           w.repair_ns == 0;
}

static int check_stats(void)
{
    static const struct hvd_stats none = {.size = sizeof(none)};
    struct hvd_stats s = {.size = sizeof(s), .ops = 7};
    return hvd_stats(&s) == 0 && memcmp(&s, &none, sizeof(s)) == 0;
}

static int check_result(void)
{
    struct hvd_result r;
    hvd_release(77);
    return hvd_result(77, &r) == -EINVAL && strstr(hvd_error(), "unknown handle 77");
}

#define ANSWER(call, want)                                                                         \
    {                                                                                              \
#call, (call) == (want)                                                                    \
    }

static int asks(int member, void *arg)
{
    const char *path = arg;
    if (hvd_init() < 0)
        return wrong(member, "init");
    const struct {
        const char *call;
        bool right;
    } answers[] = {
        ANSWER(hvd_initialized(), true),
        ANSWER(hvd_init(), 0),
        ANSWER(hvd_rank(), OLD),
        ANSWER(hvd_size(), OLD + 1),
        ANSWER(hvd_local_rank(), member),
        ANSWER(hvd_local_size(), OLD + 1),
        ANSWER(hvd_cross_rank(), 0),
        ANSWER(hvd_cross_size(), 1),
        ANSWER(hvd_homogeneous(), false),
        ANSWER(check_world(), 1),
        ANSWER(check_stats(), 1),
        ANSWER(hvd_poll(77), -EINVAL),
        ANSWER(hvd_wait(77), -EINVAL),
        ANSWER(check_result(), 1),
        ANSWER(hvd_stop_timeline(), 0),
        ANSWER(hvd_start_timeline(NULL, false), -EINVAL),
        ANSWER(hvd_start_timeline("/nowhere/%r", false), 0),
        ANSWER(hvd_start_timeline(path, false), 0),
        ANSWER(access(path, F_OK), -1),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (!answers[i].right)
            return wrong(member, answers[i].call);
    atomic_store(&board->said[member], 1);
    return go_on(member);
}

static void test_answers(void **state)
{
    char path[] = "/tmp/hvd-enter-XXXXXX", mine[64];
    struct elastic job;
    int member;
    assert_non_null(mkdtemp(path));
    snprintf(mine, sizeof(mine), "%s/2", path);
    begin(&job, BY_ENTER);
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "%s/%%r", path);
    member = elastic_add(&job, asks, pattern, NULL);
    assert_true(elastic_run(&job, said, &member, LIMIT));
    assert_true(atomic_load(&board->said[member]));
    assert_true(elastic_run(&job, waits, &member, LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    assert_int_equal(access(mine, F_OK), 0); /* the timeline has begun when it came in */
    end(&job, 0);
    unlink(mine);
    rmdir(path);
}

/* ---- what lets it in ------------------------------------------------------------------------ */

static int plain_joiner(int member, void *arg)
{
    return hvd_init() < 0 ? wrong(member, "init") : go_on(member);
}

static void test_every_way_in(void **state)
{
    for (enum how how = 0; how < HOWS; how++) {
        struct elastic job;
        int member;
        begin(&job, how);
        member = elastic_add(&job, plain_joiner, NULL, NULL);
        assert_true(elastic_run(&job, waits, &member, LIMIT));
        assert_int_equal(job.members[member].why, CTL_ENTER);
        elastic_announce(&job);
        others_step(&job, 20);
        assert_true(job.members[member].active);
        end(&job, 0);
    }
}

static void *enter_too(void *arg)
{
    int *rc = arg;
    *rc = hvd_enter();
    return NULL;
}

static int crowd(int member, void *arg)
{
    pthread_t threads[4];
    int rc[4];
    if (hvd_init() < 0)
        return wrong(member, "init");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, enter_too, &rc[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        if (rc[i] != 0)
            return printf("thread %d: %d\n", i, rc[i]), 7;
    return go_on(member);
}

static void test_many_threads_enter(void **state)
{
    struct elastic job;
    int member;
    begin(&job, BY_ENTER);
    member = elastic_add(&job, crowd, NULL, NULL);
    assert_true(elastic_run(&job, waits, &member, LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    end(&job, 0);
}

/* Two have the same place until they come in; what was made for it is refused by the one that has
 * another one now, and read by nobody. */
static int asks_for_parts(int member, void *arg)
{
    int64_t splits[OLD + 1] = {0}, rows = 8, step = -1;
    float x[8] = {0};
    hvd_handle h;
    struct hvd_request r = rank_request("parts", x, &rows);
    bool last = member == OLD + 1;
    r.kind = last ? HVD_ALLTOALL : HVD_REDUCESCATTER;
    r.splits = last ? splits : NULL;
    r.output = last ? NULL : x;
    if (hvd_init() < 0 || hvd_rank() != OLD || hvd_size() != OLD + 1)
        return wrong(member, "place");
    if (hvd_submit(&r, 1, &h) != -ESTALE)
        return wrong(member, "it should have moved");
    if (hvd_rank() != member || hvd_size() != OLD + 2)
        return wrong(member, "the place that it has now");
    return share(&step) < 0 ? wrong(member, "state") : train(member, step + 1);
}

static void test_another_place(void **state)
{
    struct elastic job;
    begin(&job, BY_ENTER);
    const int a = elastic_add(&job, asks_for_parts, NULL, NULL),
              b = elastic_add(&job, asks_for_parts, NULL, NULL);
    int members[] = {a, b};
    for (int i = 0; i < 2; i++)
        assert_true(elastic_run(&job, waits, &members[i], LIMIT));
    elastic_announce(&job);
    others_step(&job, 20);
    assert_int_equal(job.publishes, 2);
    end(&job, 0);
}

/* ---- it never comes in ---------------------------------------------------------------------- */

static int gone_again(int member, void *arg)
{
    for (int i = 0; i < 3; i++)
        if (hvd_init() < 0 || hvd_rank() != OLD || hvd_shutdown() < 0 || hvd_initialized() ||
            hvd_rank() != -ENOTCONN || hvd_shutdown() != -ENOTCONN)
            return wrong(member, "there and back");
    return 0;
}

static int dead_at_once(int member, void *arg)
{
    if (hvd_init() < 0)
        return wrong(member, "init");
    raise(SIGKILL);
    return 1;
}

static int out_of_a_fork(int member, void *arg)
{
    int status = 1;
    if (hvd_init() < 0)
        return wrong(member, "init");
    pid_t pid = fork();
    if (pid == 0)
        _exit(hvd_rank() != -EPERM || hvd_enter() != -EPERM || hvd_init() != -EPERM ||
              hvd_initialized() || hvd_shutdown() != -EPERM);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return printf("the child: %x\n", status), 6;
    return hvd_rank() == OLD ? 0 : wrong(member, "after a fork"); /* and no hvd_shutdown() */
}

/* No loss, no repair, no boundary that is more than agreement. */
static void test_they_do_not_notice(void **state)
{
    const elastic_rank_f ends[] = {gone_again, dead_at_once, out_of_a_fork};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct elastic job;
        begin(&job, BY_ENTER);
        int member = elastic_add(&job, ends[i], NULL, NULL);
        while (!job.members[member].over)
            others_step(&job, 1);
        others_step(&job, 20);
        assert_int_equal(job.members[member].status, ends[i] == dead_at_once ? SIGKILL : 0);
        assert_int_equal(job.publishes, 1);
        assert_int_equal(job.repairs, 0);
        if (ends[i] == gone_again)
            assert_int_equal(job.members[member].bye, 0);
        end(&job, 1u << member);
    }
}

static int sent_away(int member, void *arg)
{
    if (hvd_init() < 0)
        return wrong(member, "init");
    for (int i = 0; i < 2; i++)
        if (hvd_enter() != -ESHUTDOWN || !strstr(hvd_error(), "nobody needs it"))
            return wrong(member, "not wanted");
    if (hvd_commit() != -ESHUTDOWN || hvd_rank() != OLD || !hvd_initialized())
        return wrong(member, "not wanted");
    return hvd_shutdown() < 0 ? wrong(member, "shutdown") : 0;
}

static void test_not_wanted_any_more(void **state)
{
    struct elastic job;
    begin(&job, BY_ENTER);
    int member = elastic_add(&job, sent_away, NULL, NULL);
    assert_true(elastic_run(&job, waits, &member, LIMIT));
    elastic_dismiss(&job, member, "nobody needs it");
    others_step(&job, 20);
    assert_int_equal(job.publishes, 1);
    assert_int_equal(job.members[member].bye, 1); /* the agent knows */
    end(&job, 0);
}

static int waits_in_vain(int member, void *arg)
{
    float x = 1;
    if (hvd_init() < 0)
        return wrong(member, "init");
    for (int i = 0; i < 2; i++)
        if (hvd_allreduce("sum", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -ETIMEDOUT ||
            !strstr(hvd_error(), "the ranks that train came to no boundary"))
            return wrong(member, "in vain");
    return hvd_shutdown() < 0 ? wrong(member, "shutdown") : 0;
}

static void test_no_boundary(void **state)
{
    const char *const env[] = {"HVD_START_TIMEOUT=0.5", NULL};
    struct elastic job;
    begin(&job, BY_ENTER);
    int member = elastic_add(&job, waits_in_vain, NULL, env);
    while (!job.members[member].over)
        others_step(&job, 1);
    assert_int_equal(job.members[member].bye, -ETIMEDOUT);
    end(&job, 0);
}

static int interrupted(int member, void *arg)
{
    pthread_t thread;
    int rc = 0;
    if (hvd_init() < 0)
        return wrong(member, "init");
    pthread_create(&thread, NULL, enter_too, &rc);
    while (!atomic_load(&board->said[member]))
        nap_ms(1);
    if (hvd_shutdown() < 0)
        return wrong(member, "shutdown");
    pthread_join(thread, NULL);
    return rc == -ESHUTDOWN ? 0 : printf("the thread: %d\n", rc);
}

static void test_shutdown_ends_the_wait(void **state)
{
    struct elastic job;
    begin(&job, BY_ENTER);
    int member = elastic_add(&job, interrupted, NULL, NULL);
    assert_true(elastic_run(&job, waits, &member, LIMIT));
    atomic_store(&board->said[member], 1);
    others_step(&job, 20);
    end(&job, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_go_on),
        cmocka_unit_test(test_one_is_ready_before_the_other),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_every_way_in),
        cmocka_unit_test(test_many_threads_enter),
        cmocka_unit_test(test_another_place),
        cmocka_unit_test(test_they_do_not_notice),
        cmocka_unit_test(test_not_wanted_any_more),
        cmocka_unit_test(test_no_boundary),
        cmocka_unit_test(test_shutdown_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
