/* SPDX-License-Identifier: Apache-2.0
 *
 * Units in an elastic job that keeps places: two replicas of three ranks, each connected by two
 * fixed sets. Ranks are killed. The rest of their replica can do nothing until others have their
 * places, the other replica goes on, and in the end every place has the value that a job without a
 * loss has: what a replica has missed comes from the rank with the same place in the other one.
 *
 * timeout: 300
 * takes: 6 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { STAGES = 3, REPLICAS = 2, PLACES = STAGES * REPLICAS, STEPS = 40, LIMIT = 60000 /* ms */ };
enum { PRIME = 999983 };

struct board {
    _Atomic int at[ELASTIC_MAX]; /* the step of each member */
    _Atomic int go;              /* no rank begins a later step */
    bool forms;                  /* the fixed sets on the left are made by their members alone */
    _Atomic int anew;            /* ranks that have begun anew */
    bool splits;                 /* the data sets are made by rule */
    _Atomic int dead[PLACES];    /* steps that have failed with -EOWNERDEAD, by place */
    _Atomic int64_t value[PLACES];
    _Atomic int64_t ended[PLACES]; /* steps */
};

struct member {
    struct board *board;
    int number, place, stage, replica;
    int left, right, data, all; /* sets; 0: this rank is not in it */
    int64_t step, value;
};

/* ---- a step --------------------------------------------------------------------------------- */

static int reduce(int set, const char *name, enum hvd_op op, int64_t *value)
{
    int64_t one = 1;
    hvd_handle h;
    struct hvd_request r = {.kind = HVD_ALLREDUCE,
                            .name = name,
                            .input = value,
                            .output = value,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &one,
                            .op = op,
                            .device = -1,
                            .set = set};
    int rc = rank_wait(&r, &h);
    hvd_release(h);
    return rc;
}

/* The rank at a place; -1: the place is free. */
static int rank_at(int place)
{
    int places[ELASTIC_MAX], n = hvd_places(places, ELASTIC_MAX);
    for (int r = 0; r < n; r++)
        if (places[r] == place)
            return r;
    return -1;
}

/* The first stage sends its value to the last one. */
static int pass(const struct member *m, int64_t *value)
{
    int first = m->replica * STAGES, peer = rank_at(m->stage == 0 ? first + STAGES - 1 : first);
    if (m->stage == 1)
        return 0;
    if (peer < 0)
        return -EOWNERDEAD;
    return m->stage == 0 ? hvd_send(value, sizeof(*value), peer, 7, 0)
                         : hvd_recv(value, sizeof(*value), peer, 7, 0, NULL);
}

static int run_step(struct member *m, int64_t *ret)
{
    int64_t left = m->left ? m->value : 0, right = m->right ? m->value : 0;
    int64_t passed = m->stage == 0 ? m->value : 0;
    int rc = m->left ? reduce(m->left, "left", HVD_SUM, &left) : 0;
    if (rc == 0 && m->right)
        rc = reduce(m->right, "right", HVD_SUM, &right);
    if (rc == 0)
        rc = pass(m, &passed);
    if (rc < 0)
        return rc;
    passed = m->stage == STAGES - 1 ? passed : 0;
    int64_t next = (m->value * 31 + left + right + passed + m->stage + m->step) % PRIME,
            most = next;
    rc = reduce(m->data, "data", HVD_MAX, &most);
    if (rc < 0)
        return rc;
    if (most != next)
        return FAIL("step %d, place %d: the replicas differ", (int)m->step, m->place);
    int64_t step = m->step;
    rc = reduce(m->all, "all", HVD_MAX, &step);
    if (rc == 0 && step != m->step)
        rc = FAIL("place %d: step %d beside %d", m->place, (int)m->step, (int)step);
    *ret = next;
    return rc;
}

/* The same for all places, without a job. */
static void run_serially(int64_t steps, int64_t *value)
{
    for (int i = 0; i < STAGES; i++)
        value[i] = i + 1;
    for (int64_t s = 0; s < steps; s++) {
        int64_t was[STAGES];
        memcpy(was, value, sizeof(was));
        for (int i = 0; i < STAGES; i++) {
            int64_t left = i < 2 ? was[0] + was[1] : 0, right = i > 0 ? was[1] + was[2] : 0;
            int64_t passed = i == 2 ? was[0] : 0;
            value[i] = (was[i] * 31 + left + right + passed + i + s) % PRIME;
        }
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

/* All ranks know that the set is fixed, so it still is when all of its members are lost. */
static int add_fixed(const int *ranks, int *ret)
{
    int rc = hvd_set_add(ranks, 2, ret);
    return rc == 0 ? hvd_set_fix(*ret) : rc;
}

static int make_sets(struct member *m)
{
    char name[32];
    int all[PLACES], rc = 0, set = 0;
    for (int p = 0; p < PLACES; p++)
        all[p] = p;
    for (int d = 0; d < REPLICAS && rc == 0; d++) {
        const int stages[] = {d * STAGES, d * STAGES + 1, d * STAGES + 2};
        rc = add_fixed(stages + 1, &set);
        m->right = d == m->replica && m->stage > 0 ? set : m->right;
        if (rc == 0 && !m->board->forms)
            rc = add_fixed(stages, &set);
        m->left = d == m->replica && m->stage < 2 ? set : m->left;
    }
    if (rc == 0)
        rc = hvd_set_add(all, PLACES, &m->all);
    const int left[] = {m->replica * STAGES, m->replica * STAGES + 1};
    snprintf(name, sizeof(name), "left %d", m->replica);
    if (rc == 0 && m->stage < 2 && m->board->forms)
        rc = hvd_set_form(name, left, 2, &m->left);
    const int data[] = {m->stage, STAGES + m->stage};
    snprintf(name, sizeof(name), "data %d", m->stage);
    if (rc == 0 && m->board->splits)
        rc = hvd_set_split("stage 3", &m->data);
    else if (rc == 0)
        rc = hvd_set_form(name, data, 2, &m->data);
    if (rc == 0 && m->left && m->board->forms)
        rc = hvd_set_fix(m->left);
    return rc < 0 ? FAIL("place %d: %s", m->place, hvd_error()) : 0;
}

/* A joiner is in the sets that have its place. */
static int find_sets(struct member *m)
{
    char name[32];
    int sets[16], added = m->board->forms ? 1 : 2; /* for each replica */
    snprintf(name, sizeof(name), "data %d", m->stage);
    m->data = hvd_set_find(m->board->splits ? "stage 3" : name);
    snprintf(name, sizeof(name), "left %d", m->replica);
    m->right = m->stage > 0 ? 1 + added * m->replica : 0;
    m->left = m->stage == 2 ? 0 : m->board->forms ? hvd_set_find(name) : 2 + added * m->replica;
    m->all = 1 + added * REPLICAS;
    int expected = m->all + 1 + (m->board->forms && m->left > 0);
    if (m->data < 0 || m->left < 0)
        return FAIL("place %d finds no set: %s", m->place, hvd_error());
    if (hvd_sets(sets, 16) != expected)
        return FAIL("place %d knows %d sets", m->place, hvd_sets(NULL, 0));
    return 0;
}

/* No rank has the state. */
static int begin_anew(struct member *m)
{
    m->step = 0;
    m->value = m->stage + 1;
    atomic_fetch_add(&m->board->anew, 1);
    return 0;
}

/* What this rank lacks comes from the rank with the same place in the other replica. A rank whose
 * unit is still broken has no part in it. */
static int take_state(struct member *m)
{
    int64_t state[2] = {m->step, m->value}, two = 2;
    hvd_handle h;
    int source = hvd_set_source(m->data);
    struct hvd_request r = {.kind = HVD_BROADCAST,
                            .name = "state",
                            .input = state,
                            .output = state,
                            .dtype = HVD_INT64,
                            .ndim = 1,
                            .shape = &two,
                            .root = source,
                            .device = -1,
                            .set = m->data};
    if (source == -ENODATA)
        return hvd_places(NULL, 0) == PLACES ? begin_anew(m) : 0;
    int rc = source < 0 ? source : rank_wait(&r, &h);
    if (source >= 0)
        hvd_release(h);
    if (rc == -EOWNERDEAD)
        return 0;
    m->step = state[0];
    m->value = state[1];
    return rc < 0 ? FAIL("place %d takes the state: %s", m->place, hvd_error()) : 0;
}

/* Ranks with the same stage of the model. */
static int by_stage(const struct hvd_roster *roster, int rank, int k, void *arg)
{
    (void)arg;
    return roster->places[rank] % k;
}

static int enter(struct member *m)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int rc = hvd_world(&w);
    bool joins = rc == 0 && w.is_new;
    if (joins)
        rc = hvd_commit();
    if (rc < 0 || (joins && rc != 1))
        return FAIL("member %d: %s", m->number, hvd_error());
    m->place = hvd_place();
    m->stage = m->place % STAGES;
    m->replica = m->place / STAGES;
    m->value = m->stage + 1;
    if (!joins)
        return make_sets(m);
    rc = find_sets(m);
    return rc == 0 ? take_state(m) : rc;
}

static int iterate(struct member *m)
{
    int64_t next = 0;
    int rc = run_step(m, &next);
    if (rc == 0) {
        m->value = next;
        m->step++;
    } else if (rc == -EOWNERDEAD) {
        atomic_fetch_add(&m->board->dead[m->place], 1);
    } else {
        return rc < 0 ? FAIL("place %d: %s", m->place, hvd_error()) : rc;
    }
    atomic_store(&m->board->at[m->number], (int)m->step);
    int changed = hvd_commit();
    if (changed < 0)
        return FAIL("place %d: %s", m->place, hvd_error());
    if (hvd_place() != m->place)
        return FAIL("place %d has become %d", m->place, hvd_place());
    return changed ? take_state(m) : 0;
}

static int train(int member, void *arg)
{
    struct member m = {.board = arg, .number = member};
    struct board *b = arg;
    hvd_rule_define("stage", by_stage, NULL);
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : enter(&m);
    while (rc == 0 && m.step < STEPS) {
        while (m.step > atomic_load(&b->go))
            nap_ms(1);
        rc = iterate(&m);
    }
    if (rc == 0) {
        atomic_store(&b->value[m.place], m.value);
        atomic_store(&b->ended[m.place], m.step);
    }
    return rc ? rc : hvd_shutdown() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

struct plan {
    struct elastic job;
    struct board *board;
    const char *const *env; /* of all members */
    int member_at[PLACES];
    char what[80];
};

static void begin(struct plan *p, const char *const *env, bool forms, const char *what)
{
    static unsigned jobs;
    elastic_init(&p->job);
    p->job.keep_places = p->job.numbers = true;
    p->board = world_board(sizeof(*p->board));
    p->board->forms = forms;
    p->board->splits = jobs++ % 2;
    p->env = env;
    snprintf(p->what, sizeof(p->what), "%s", what);
    for (int m = 0; m < PLACES; m++)
        p->member_at[m] = elastic_add(&p->job, train, p->board, env);
}

static void run_to(struct plan *p, int place, int step)
{
    atomic_store(&p->board->go, step + 1);
    if (!elastic_run_to(&p->job, &p->board->at[p->member_at[place]], step, LIMIT))
        fail_msg("%s: place %d has not reached step %d", p->what, place, step);
}

static bool failed_there(struct elastic *job, void *arg)
{
    const _Atomic int *dead = arg;
    (void)job;
    return atomic_load(dead) > 0;
}

/* Kills the ranks at two places of a replica, or at one (-1), and waits until the rest of the
 * replica has noticed, while the other replica goes on. */
static void kill_at(struct plan *p, int one, int two)
{
    struct board *b = p->board;
    int rest = one - one % STAGES;
    while (rest == one || rest == two)
        rest++;
    for (int i = 0; i < PLACES; i++)
        atomic_store(&b->dead[i], 0);
    kill(p->job.members[p->member_at[one]].pid, SIGKILL);
    if (two >= 0)
        kill(p->job.members[p->member_at[two]].pid, SIGKILL);
    atomic_fetch_add(&b->go, 2);
    if (!elastic_run(&p->job, failed_there, &b->dead[rest], LIMIT))
        fail_msg("%s: place %d has not noticed", p->what, rest);
}

struct news {
    const struct plan *plan;
    int first, step; /* members from `first` on have joined */
};

static bool any_over(const struct plan *p)
{
    bool any = false;
    for (int i = 0; i < PLACES; i++)
        any = any || p->job.members[p->member_at[i]].over;
    return any;
}

static bool wait_or_die(struct elastic *job, void *arg)
{
    const struct news *n = arg;
    int first = n->first;
    return any_over(n->plan) || elastic_joiners_wait(job, &first);
}

static bool train_or_die(struct elastic *job, void *arg)
{
    const struct news *n = arg;
    bool all = true;
    for (int m = n->first; m < job->n; m++)
        all = all && atomic_load(&n->plan->board->at[m]) >= n->step;
    return all || any_over(n->plan);
}

/* Starts members for the places that are free, and admits them. env: theirs. False: one of the
 * replica has died meanwhile. */
static bool try_to_admit(struct plan *p, const char *const *env)
{
    struct news n = {.plan = p, .first = p->job.n};
    for (int i = 0; i < PLACES; i++)
        if (p->job.members[p->member_at[i]].over)
            p->member_at[i] = elastic_add(&p->job, train, p->board, env);
    if (!elastic_run(&p->job, wait_or_die, &n, LIMIT))
        fail_msg("%s: the joiners do not come", p->what);
    elastic_announce(&p->job);
    n.step = atomic_load(&p->board->go);
    atomic_store(&p->board->go, n.step + 2);
    if (!elastic_run(&p->job, train_or_die, &n, LIMIT))
        fail_msg("%s: the joiners have not reached step %d", p->what, n.step);
    return !any_over(p);
}

static void admit(struct plan *p)
{
    if (!try_to_admit(p, p->env))
        fail_msg("%s: a rank has died", p->what);
}

static void end(struct plan *p)
{
    int64_t expected[STAGES];
    atomic_store(&p->board->go, STEPS);
    if (!elastic_run(&p->job, elastic_all_over, NULL, LIMIT))
        fail_msg("%s: the job has not ended", p->what);
    run_serially(STEPS, expected);
    for (int i = 0; i < PLACES; i++) {
        if (p->job.members[p->member_at[i]].status != 0)
            fail_msg("%s: place %d has failed", p->what, i);
        if (p->board->ended[i] != STEPS || p->board->value[i] != expected[i % STAGES])
            fail_msg("%s: place %d has %d after %d steps, not %d", p->what, i,
                     (int)p->board->value[i], (int)p->board->ended[i], (int)expected[i % STAGES]);
    }
    elastic_fini(&p->job);
}

static const char *const hosts[][2] = {{"HVD_X=1", NULL}, {"HVD_SHM=0", NULL}};

/* The other replica never fails. */
static void expect_other_well(const struct plan *p, int replica)
{
    for (int i = 0; i < STAGES; i++)
        if (p->board->dead[(1 - replica) * STAGES + i])
            fail_msg("%s: place %d has failed", p->what, (1 - replica) * STAGES + i);
}

static void test_each_place(void **state)
{
    for (int place = 0; place < PLACES; place++) {
        struct plan p;
        char what[32];
        snprintf(what, sizeof(what), "place %d", place);
        begin(&p, hosts[place % 2], true, what);
        run_to(&p, 0, 3);
        kill_at(&p, place, -1);
        run_to(&p, place < STAGES ? STAGES : 0, 8);
        expect_other_well(&p, place / STAGES);
        admit(&p);
        end(&p);
    }
}

static void test_one_after_the_other(void **state)
{
    struct plan p;
    begin(&p, hosts[0], false, "two units, one after the other");
    run_to(&p, 0, 2);
    kill_at(&p, 1, 2);
    admit(&p);
    run_to(&p, 0, 9);
    kill_at(&p, 3, -1);
    admit(&p);
    run_to(&p, 0, 15);
    kill_at(&p, 4, 5);
    run_to(&p, 0, 17);
    admit(&p);
    end(&p);
}

/* A rank of one replica is lost, and before it is replaced a rank of the other one: no rank has the
 * state when all are back, and each of them is told so. */
static void test_each_replica_loses_one(void **state)
{
    struct plan p;
    begin(&p, hosts[0], false, "both units at a time");
    run_to(&p, 0, 3);
    kill_at(&p, 1, -1);
    kill_at(&p, STAGES + 2, -1);
    admit(&p);
    assert_int_equal(p.board->anew, PLACES);
    end(&p);
}

/* A joiner, or a rank that waits for it, dies in each phase of the boundary that admits it. */
static void test_kill_in_admission(void **state)
{
    static const char *const phases[] = {"report",      "install", "connect",  "settle", "change",
                                         "set connect", "view",    "resubmit", "revoke"};
    for (unsigned i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        struct plan p;
        char what[64], variable[64];
        snprintf(what, sizeof(what), "a death at %s", phases[i]);
        snprintf(variable, sizeof(variable), "HVD_TEST_FAIL=%s", phases[i]);
        const char *const dies[] = {variable, hosts[i % 2][0], NULL};
        begin(&p, hosts[i % 2], false, what);
        run_to(&p, 0, 2);
        kill_at(&p, (int)i % PLACES, i % 3 ? -1 : (int)i % PLACES / STAGES * STAGES + 2);
        try_to_admit(&p, dies);
        for (int tries = 0; any_over(&p) && tries < 3; tries++)
            try_to_admit(&p, p.env);
        end(&p);
    }
}

static bool is_over(struct elastic *job, void *arg)
{
    return job->members[*(const int *)arg].over;
}

static void kill_and_reap(struct plan *p, int place)
{
    int member = p->member_at[place];
    kill(p->job.members[member].pid, SIGKILL);
    assert_true(elastic_run(&p->job, is_over, &member, LIMIT));
}

/* Ranks of one replica die at any moment, also while it is waiting for others, and while it comes
 * back. */
static void test_kill_at_random(void **state)
{
    for (unsigned seed = 1; seed <= (unsigned)effort(20); seed++) {
        struct plan p;
        char what[32];
        uint64_t random = seed;
        snprintf(what, sizeof(what), "seed %u", seed);
        begin(&p, hosts[seed % 2], false, what);
        run_to(&p, 0, 2);
        int replica = (int)(rank_random(&random) % REPLICAS) * STAGES;
        atomic_fetch_add(&p.board->go, 6);
        for (int k = 0; k < 5; k++) {
            nap_ms((unsigned)(rank_random(&random) % 4));
            kill_and_reap(&p, replica + (int)(rank_random(&random) % STAGES));
            if (rank_random(&random) % 2)
                try_to_admit(&p, p.env);
        }
        for (int tries = 0; any_over(&p) && tries < 5; tries++)
            try_to_admit(&p, p.env);
        end(&p);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_place),
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_each_replica_loses_one),
        cmocka_unit_test(test_kill_in_admission),
        cmocka_unit_test(test_kill_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
