/* SPDX-License-Identifier: Apache-2.0
 *
 * deaths: see deaths.h.
 */
#include "tests/harness/deaths.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"

#define LIMIT_MS 120000

static int member_main(int member, void *arg)
{
    struct deaths *d = arg;
    if (d->hosts)
        setenv("HVD_LOCALITY", (char[]){d->hosts[member], 0}, 1);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step < DEATHS_STEPS; step++) {
        atomic_store(&d->at[member], step);
        int rc = d->step(member, step, d->arg);
        if (rc != 0)
            return rc;
        if (step % 5 == 4 && hvd_commit() < 0)
            return FAIL("commit: %s", hvd_error());
    }
    atomic_store(&d->at[member], DEATHS_STEPS);
    hvd_shutdown();
    return 0;
}

bool deaths_run(struct elastic *job, struct deaths *d, unsigned seed)
{
    uint64_t random = seed;
    for (int m = 0; m < DEATHS_MEMBERS; m++) {
        atomic_store(&d->at[m], 0);
        elastic_add(job, member_main, d, NULL);
    }
    for (int i = 0; i < 2; i++) {
        int step = 4 + d->gap * i + (int)(rank_random(&random) % 8);
        if (!elastic_run_to(job, &d->at[0], step, LIMIT_MS))
            return false;
        usleep((useconds_t)(rank_random(&random) % (unsigned)d->within_us));
        kill(job->members[i == 0 ? 1 : 3].pid, SIGKILL);
    }
    return elastic_run(job, elastic_all_over, NULL, LIMIT_MS);
}

void deaths_run_all(struct deaths *d, unsigned seeds)
{
    for (unsigned seed = 1; seed <= seeds; seed++) {
        struct elastic job;
        elastic_init(&job);
        if (!deaths_run(&job, d, seed))
            fail_msg("seed %u: it has not ended within two minutes", seed);
        for (int m = 0; m < DEATHS_MEMBERS; m += 2)
            if (job.members[m].status != 0)
                fail_msg("seed %u: member %d ended with status %x", seed, m, job.members[m].status);
        elastic_fini(&job);
    }
}

const char *const deaths_places[DEATHS_PLACES][DEATHS_MEMBERS] = {
    {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
    {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
    {"HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b", "HVD_LOCALITY=a"},
};

void deaths_kill(struct elastic *job, _Atomic bool *killed, int member)
{
    atomic_store(&killed[member], true);
    kill(job->members[member].pid, SIGKILL);
}

void deaths_kill_at(struct elastic *job, int member, const _Atomic int *at, int step, int ms,
                    uint64_t *random, const char *what)
{
    if (!elastic_run_to(job, at, step, ms))
        fail_msg("%s: step %d was not reached", what, step);
    usleep((unsigned)(rank_random(random) % 8000));
    kill(job->members[member].pid, SIGKILL);
}

void deaths_expect_end(struct elastic *job, uint32_t left, const char *what)
{
    if (!elastic_run(job, elastic_all_over, NULL, 60000))
        fail_msg("%s: the job has not ended within a minute", what);
    if (elastic_survivors(job) != left)
        fail_msg("%s: members %x survived, not %x", what, elastic_survivors(job), left);
}
