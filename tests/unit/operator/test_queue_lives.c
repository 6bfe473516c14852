/* SPDX-License-Identifier: Apache-2.0
 *
 * Random lives of a few jobs of three priorities, with the real queue, and a scheduler that knows
 * no reservations: it binds a worker to any node that has room. Leaders change, and forget what
 * they have not written. Rule: a job that waits preempts another one once in two minutes.
 * HVD_SIM_SEED=n repeats one seed and prints what happens, HVD_SIM_SEEDS=n runs that many.
 *
 * takes: 5 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/words.h"
#include "tests/harness/effort.h"

#define NODES 8
#define JOBS  12
#include "tests/unit/operator/queues.h"

#define WORKERS 6
#define TICK    250 /* ms */
#define TICKS   1200
#define CLAIM   (120 * MOMENT_S) /* see queue_room.c */

enum pod_state { POD_NONE, POD_UNBOUND, POD_BOUND, POD_LEAVING };

struct worker {
    enum pod_state state;
    int node;
    int64_t until; /* POD_LEAVING: when it is gone */
};

struct life {
    struct worker workers[WORKERS];
    int at[WORKERS], numbers[WORKERS];
    int64_t ends;        /* JOB_RUNNING: when it has done its work */
    int64_t answered;    /* when its dry run is answered */
    int64_t claimed;     /* the leader's, not written yet */
    bool go, preempted;  /* the leader's last decision */
    char by[128];        /* preempted: for that job */
    int64_t taken[JOBS]; /* when that job has preempted it, since that one has queued */
};

struct sim {
    struct world *w;
    struct life lives[JOBS];
    uint64_t dice;
    int64_t now, led; /* since when a leader leads */
    int wrong, preemptions;
    bool trace;
};

static unsigned roll(struct sim *s, unsigned n)
{
    s->dice = s->dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(s->dice >> 33) % n;
}

static void tell(const struct sim *s, const struct hvdjob *job, const char *what, const char *more)
{
    if (s->trace)
        print_message("%7.2f %s/%s (%d of %d): %s%s\n", (double)(s->now - NOW) / 1000,
                      job->namespace_, job->name, job->min, job->workers, what, more);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int64_t cpu_of(const struct sim *s, int i)
{
    return s->w->demand[i].spec.requests.amount[RESOURCES_CPU];
}

static void enter(struct sim *s, int i, enum job_phase phase)
{
    s->w->jobs[i].status.phase = phase;
    s->lives[i].go = s->lives[i].preempted = false; /* as entry_forget_admission() */
    tell(s, &s->w->jobs[i], "is ", job_phase_name(phase));
}

static void enqueue(struct sim *s, int i)
{
    struct hvdjob *job = &s->w->jobs[i];
    job->status.queued = moment_whole(s->now);
    s->lives[i].answered = s->now + (int64_t)roll(s, 4) * TICK;
    for (int k = 0; k < s->w->n; k++)
        s->lives[k].taken[i] = MOMENT_NONE;
    enter(s, i, JOB_QUEUED);
}

static void settle(struct sim *s, int i)
{
    struct hvdjob_status *st = &s->w->jobs[i].status;
    st->claimed = st->last_preemption = MOMENT_NONE;
    s->lives[i].claimed = MOMENT_NONE;
    assert_int_equal(words_set(&st->preempted_by, NULL), 0);
    s->lives[i].ends = s->now + 1000 * (1 + (int64_t)roll(s, 40));
    enter(s, i, JOB_RUNNING);
}

static void leave_nodes(struct sim *s, int i)
{
    for (int k = 0; k < WORKERS; k++) {
        struct worker *p = &s->lives[i].workers[k];
        if (p->state == POD_UNBOUND)
            p->state = POD_NONE;
        if (p->state != POD_BOUND)
            continue;
        p->state = POD_LEAVING;
        p->until = s->now + (int64_t)roll(s, 8) * TICK;
    }
}

static int count(const struct sim *s, int i, enum pod_state state)
{
    int n = 0;
    for (int k = 0; k < WORKERS; k++)
        n += s->lives[i].workers[k].state == state;
    return n;
}

static void preempt(struct sim *s, int i)
{
    struct life *l = &s->lives[i];
    struct hvdjob *job = &s->w->jobs[i];
    int by = atoi(strchr(l->by, '/') + 2);
    tell(s, job, "is preempted by ", l->by);
    s->preemptions++;
    s->wrong += l->taken[by] != MOMENT_NONE && s->now < l->taken[by] + CLAIM;
    l->taken[by] = s->now;
    assert_int_equal(words_set(&job->status.preempted_by, l->by), 0);
    job->status.last_preemption = moment_whole(s->now);
    leave_nodes(s, i);
    enter(s, i, JOB_RESTARTING);
}

/* What reconcile() does, for one job: also some time after the decision. */
static void reconcile_one(struct sim *s, int i)
{
    struct life *l = &s->lives[i];
    struct hvdjob *job = &s->w->jobs[i];
    enum job_phase phase = job->status.phase;
    if (phase == JOB_QUEUED && l->claimed > job->status.claimed)
        job->status.claimed = l->claimed;
    if (phase == JOB_QUEUED && l->go) {
        job->status.admitted = s->now;
        for (int k = 0; k < job->min; k++)
            l->workers[k].state = POD_UNBOUND;
        enter(s, i, JOB_STARTING);
    } else if ((phase == JOB_STARTING || phase == JOB_RUNNING) && l->preempted) {
        preempt(s, i);
    } else if (phase == JOB_STARTING && count(s, i, POD_BOUND) == job->min) {
        settle(s, i);
    } else if (phase == JOB_RESTARTING && count(s, i, POD_LEAVING) == 0) {
        enqueue(s, i);
    } else if (phase == JOB_RUNNING && (s->now >= l->ends || roll(s, 400) == 0)) {
        leave_nodes(s, i); /* has ended, and is created anew; or starts again */
        enter(s, i, JOB_RESTARTING);
    }
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void count_used(struct sim *s)
{
    struct world *w = s->w;
    for (int n = 0; n < w->c.n; n++)
        w->used[n].amount[RESOURCES_CPU] = w->freeing[n].amount[RESOURCES_CPU] =
            w->foreign[n].amount[RESOURCES_CPU];
    for (int n = 0; n < w->c.n; n++)
        w->freeing[n].amount[RESOURCES_CPU] = 0;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < WORKERS; k++) {
            const struct worker *p = &s->lives[i].workers[k];
            if (p->state == POD_BOUND || p->state == POD_LEAVING)
                w->used[p->node].amount[RESOURCES_CPU] += cpu_of(s, i);
            /* of a job that is to be preempted all workers are about to be free */
            if (p->state == POD_LEAVING || (p->state == POD_BOUND && s->lives[i].preempted))
                w->freeing[p->node].amount[RESOURCES_CPU] += cpu_of(s, i);
        }
}

static void schedule(struct sim *s)
{
    struct world *w = s->w;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < WORKERS; k++) {
            struct worker *p = &s->lives[i].workers[k];
            unsigned n = roll(s, NODES);
            if (p->state == POD_LEAVING && s->now >= p->until)
                p->state = POD_NONE;
            if (p->state != POD_UNBOUND || w->nodes[n].cordoned ||
                w->used[n].amount[RESOURCES_CPU] + cpu_of(s, i) >
                    w->nodes[n].allocatable.amount[RESOURCES_CPU])
                continue;
            *p = (struct worker){.state = POD_BOUND, .node = (int)n};
            count_used(s);
        }
}

/* A pod of no job comes or goes. Nodes stay as they are: for a lost one a job may be preempted
 * again. */
static void disturb(struct sim *s)
{
    unsigned n = roll(s, NODES);
    if (roll(s, 40) == 0 && s->w->used[n].amount[RESOURCES_CPU] == 0)
        s->w->foreign[n].amount[RESOURCES_CPU] = 1000;
    n = roll(s, NODES);
    if (roll(s, 20) == 0)
        s->w->foreign[n].amount[RESOURCES_CPU] = 0;
}

/* ---- the operator ---------------------------------------------------------------------------- */

static void change_leader(struct sim *s)
{
    if (roll(s, 150) != 0)
        return;
    s->led = s->now + (int64_t)roll(s, 8) * TICK;
    for (int i = 0; i < s->w->n; i++) {
        s->lives[i].go = s->lives[i].preempted = false;
        s->lives[i].claimed = MOMENT_NONE;
        s->lives[i].answered = s->led + (int64_t)roll(s, 8) * TICK;
    }
    if (s->trace)
        print_message("%7.2f another operator leads\n", (double)(s->led - NOW) / 1000);
}

static void see(struct sim *s, int i)
{
    struct queue_job *j = &s->w->q[i];
    struct life *l = &s->lives[i];
    j->nat = 0;
    for (int k = 0; k < WORKERS && !l->preempted; k++)
        if (l->workers[k].state == POD_BOUND) {
            l->numbers[j->nat] = k;
            l->at[j->nat++] = l->workers[k].node;
        }
    j->at = l->at;
    j->numbers = l->numbers;
    j->bound = count(s, i, POD_BOUND);
    j->alive = j->bound + count(s, i, POD_UNBOUND);
    j->pending = j->job->status.phase == JOB_QUEUED && s->now < l->answered;
    j->claimed = l->claimed > j->job->status.claimed ? l->claimed : j->job->status.claimed;
    j->preempted_by = l->preempted ? l->by : NULL;
}

static void run_queue(struct sim *s)
{
    struct world *w = s->w;
    for (int i = 0; i < w->n; i++)
        see(s, i);
    count_used(s);
    decide(w, s->now);
    for (int i = 0; i < w->n; i++) {
        const struct admission *a = &w->q[i].ret;
        struct life *l = &s->lives[i];
        l->claimed = a->claimed;
        if (w->q[i].pending)
            continue;
        l->go = a->go;
        l->preempted = a->preempted;
        snprintf(l->by, sizeof(l->by), "%s", a->by);
        if (a->wait != WAIT_UNDECIDED)
            tell(s, &w->jobs[i], wait_name(a->wait), a->why);
    }
}

static void live(struct sim *s)
{
    for (int t = 0; t < TICKS && s->wrong == 0; t++) {
        s->now += TICK;
        count_used(s);
        disturb(s);
        schedule(s);
        change_leader(s);
        for (int i = 0; i < s->w->n && s->now >= s->led; i++)
            if (roll(s, 3) > 0)
                reconcile_one(s, i);
        count_used(s);
        if (s->now >= s->led && roll(s, 4) > 0)
            run_queue(s);
    }
}

static void begin(struct sim *s)
{
    char text[64];
    for (int n = 0; n < NODES; n++) {
        snprintf(text, sizeof(text), "n%d", n);
        add_node(s->w, text, n < NODES / 2 ? 4 : 8, "", "");
    }
    for (int i = 0; i < JOBS; i++) {
        unsigned workers = 1 + roll(s, WORKERS), cpu = 1 + roll(s, 8);
        snprintf(text, sizeof(text), "'workers':%u", workers);
        add_job(s->w, (char[]){'j', (char)('0' + i / 10), (char)('0' + i % 10), '\0'}, text, "");
        move_to(s->w, (const char *[]){"a", "b", "c"}[roll(s, 3)]);
        last(s->w)->priority = 10 * (int)roll(s, 3);
        s->w->demand[i].spec.requests.amount[RESOURCES_CPU] = 1000 * (int64_t)cpu;
        s->w->demand[i].spec.requests.amount[RESOURCES_MEMORY] = 0;
        enqueue(s, i);
    }
}

/* How often a rule was violated. */
static int run(uint64_t seed, bool trace, int *preemptions)
{
    void *state = NULL;
    assert_int_equal(world_begin(&state), 0);
    struct sim s = {.w = state, .dice = seed * 7919 + 1, .now = NOW, .led = NOW, .trace = trace};
    begin(&s);
    live(&s);
    world_end(&state);
    *preemptions += s.preemptions;
    return s.wrong;
}

static void test_seeds(void **state)
{
    const char *one = getenv("HVD_SIM_SEED"), *many = getenv("HVD_SIM_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t end = one ? first : many ? strtoull(many, NULL, 10) : (uint64_t)effort(100);
    int wrong = 0, preemptions = 0;
    (void)state;
    for (uint64_t seed = first; seed <= end; seed++)
        if (run(seed, one != NULL, &preemptions) > 0) {
            print_message("HVD_SIM_SEED=%llu: a job was preempted again\n",
                          (unsigned long long)seed);
            wrong++;
        }
    print_message("%d preemptions\n", preemptions);
    assert_int_equal(wrong, 0);
    assert_true(one || preemptions > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
