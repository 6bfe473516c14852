/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that starts to join while others train and is never admitted: it leaves, dies, is refused
 * or waits in vain. The others do not notice.
 *
 * timeout: 300
 * takes: 2 s, waiting
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
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/enter_job.h"
#include "tests/harness/rank.h"

static int gone_again(int member, void *arg)
{
    for (int i = 0; i < 3; i++)
        if (hvd_init() < 0 || hvd_rank() != ENTER_OLD || hvd_shutdown() < 0 || hvd_initialized() ||
            hvd_rank() != -ENOTCONN || hvd_shutdown() != -ENOTCONN)
            return enter_job_wrong(member, "there and back");
    return 0;
}

static int dead_at_once(int member, void *arg)
{
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    raise(SIGKILL);
    return 1;
}

static int out_of_a_fork(int member, void *arg)
{
    int status = 1;
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    pid_t pid = fork();
    if (pid == 0)
        _exit(hvd_rank() != -EPERM || hvd_enter() != -EPERM || hvd_init() != -EPERM ||
              hvd_initialized() || hvd_shutdown() != -EPERM);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return printf("the child: %x\n", status), 6;
    return hvd_rank() == ENTER_OLD
               ? 0
               : enter_job_wrong(member, "after a fork"); /* without hvd_shutdown() */
}

/* The others see no loss, no repair, and no boundary that does more than agree. */
static void test_they_do_not_notice(void **state)
{
    const elastic_rank_f ends[] = {gone_again, dead_at_once, out_of_a_fork};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct elastic job;
        enter_job_begin(&job, BY_ENTER);
        int member = elastic_add(&job, ends[i], NULL, NULL);
        while (!job.members[member].over)
            enter_job_step(&job, 1);
        enter_job_step(&job, 20);
        assert_int_equal(job.members[member].status, ends[i] == dead_at_once ? SIGKILL : 0);
        assert_int_equal(job.publishes, 1);
        assert_int_equal(job.repairs, 0);
        if (ends[i] == gone_again)
            assert_int_equal(job.members[member].bye, 0);
        enter_job_end(&job, 1u << member);
    }
}

static int sent_away(int member, void *arg)
{
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    for (int i = 0; i < 2; i++)
        if (hvd_enter() != -ESHUTDOWN || !strstr(hvd_error(), "nobody needs it"))
            return enter_job_wrong(member, "not wanted");
    if (hvd_commit() != -ESHUTDOWN || hvd_rank() != ENTER_OLD || !hvd_initialized())
        return enter_job_wrong(member, "not wanted");
    return hvd_shutdown() < 0 ? enter_job_wrong(member, "shutdown") : 0;
}

static void test_not_wanted_any_more(void **state)
{
    struct elastic job;
    enter_job_begin(&job, BY_ENTER);
    int member = elastic_add(&job, sent_away, NULL, NULL);
    assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
    elastic_dismiss(&job, member, "nobody needs it");
    enter_job_step(&job, 20);
    assert_int_equal(job.publishes, 1);
    assert_int_equal(job.members[member].bye, 1); /* no BYE: the agent itself has sent it away */
    enter_job_end(&job, 0);
}

static int waits_in_vain(int member, void *arg)
{
    float x = 1;
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    for (int i = 0; i < 2; i++)
        if (hvd_allreduce("sum", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -ETIMEDOUT ||
            !strstr(hvd_error(), "the ranks that train reached no step boundary"))
            return enter_job_wrong(member, "in vain");
    return hvd_shutdown() < 0 ? enter_job_wrong(member, "shutdown") : 0;
}

static void test_no_boundary(void **state)
{
    const char *const env[] = {"HVD_START_TIMEOUT=2", NULL};
    struct elastic job;
    enter_job_begin(&job, BY_ENTER);
    int member = elastic_add(&job, waits_in_vain, NULL, env);
    while (!job.members[member].over)
        enter_job_step(&job, 1);
    assert_int_equal(job.members[member].bye, -ETIMEDOUT);
    enter_job_end(&job, 0);
}

static int interrupted(int member, void *arg)
{
    pthread_t thread;
    int rc = 0;
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    pthread_create(&thread, NULL, enter_job_enter, &rc);
    while (!atomic_load(&enter_board->said[member]))
        nap_ms(1);
    if (hvd_shutdown() < 0)
        return enter_job_wrong(member, "shutdown");
    pthread_join(thread, NULL);
    return rc == -ESHUTDOWN ? 0 : printf("the thread: %d\n", rc);
}

static void test_shutdown_ends_the_wait(void **state)
{
    struct elastic job;
    enter_job_begin(&job, BY_ENTER);
    int member = elastic_add(&job, interrupted, NULL, NULL);
    assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
    atomic_store(&enter_board->said[member], 1);
    enter_job_step(&job, 20);
    enter_job_end(&job, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_do_not_notice),
        cmocka_unit_test(test_not_wanted_any_more),
        cmocka_unit_test(test_no_boundary),
        cmocka_unit_test(test_shutdown_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
