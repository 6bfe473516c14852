/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of negotiate: many random worlds and programs (tests/harness/negotiate_sim.h), each from a
 * seed. HVD_SIM_SEED=n runs that seed alone, HVD_SIM_SEEDS=n that many.
 *
 * takes: 13 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/harness/negotiate_sim.h"

enum { MAX_ITEMS = 24 };

/* Sanitizers are slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 300 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SEEDS = 300 };
#else
enum { SEEDS = 1500 };
#endif
#else
enum { SEEDS = 1500 };
#endif

/* One tensor or one group of tensors of a pattern. */
struct item {
    int name;
    uint32_t group; /* members, with consecutive names; 0: a tensor without a group */
    uint64_t version;
    struct signature sig;
};

/* What every rank does in a round: for each piece, each rank submits the piece's items in its
 * own order, then waits for them in its own order. */
struct pattern {
    bool gpus; /* about half of its items are on GPUs */
    struct item items[MAX_ITEMS];
    int n;
    int piece_ends[MAX_ITEMS];
    int npieces;
    bool wait_late; /* waits at the end of the round */
    bool pipelined; /* waits before it submits again, in the next round */
};

static struct signature random_signature(struct sim *s, uint64_t version, bool gpus)
{
    struct signature sig = sim_allreduce(1 + (int64_t)(sim_random(s, 2000) + version) % 3000);
    uint64_t kind = sim_random(s, 12);
    if (kind == 0)
        sig = sim_allgather();
    if (kind == 1 || kind == 2) {
        sig.kind = kind == 1 ? HVD_ALLTOALL : HVD_BROADCAST;
        sig.shape[0] = kind == 1 ? 0 : 10;
    }
    if (kind == 3) {
        sig.kind = HVD_BARRIER;
        sig.ndim = 0;
    }
    if (kind == 4)
        sig.op = HVD_MAX;
    /* A plan has no bound batch with tables, so they are rare. */
    bool tables = sig.kind == HVD_ALLGATHER || sig.kind == HVD_ALLTOALL;
    if (gpus && sig.kind != HVD_BARRIER && sim_random(s, tables ? 16 : 2) == 0) {
        sig = sim_on_gpu(sig);
        if (sim_random(s, 4) == 0)
            sig.dtype = HVD_FLOAT16;
    }
    return sig;
}

static void new_pattern(struct sim *s, struct pattern *p, int max)
{
    int name = (int)sim_random(s, 8);
    *p = (struct pattern){.gpus = p->gpus, .n = 1 + (int)sim_random(s, (uint64_t)max)};
    for (int i = 0; i < p->n; i++) {
        struct item *it = &p->items[i];
        it->name = name;
        it->version = sim_random(s, 3);
        it->sig = random_signature(s, it->version, p->gpus);
        if (sim_random(s, 6) == 0) {
            it->group = 1 + (uint32_t)sim_random(s, 4);
            it->sig = sim_allreduce(1 + (int64_t)sim_random(s, 2000));
            if (p->gpus && sim_random(s, 2))
                it->sig = sim_on_gpu(it->sig);
        }
        name += it->group ? (int)it->group : 1;
    }
    for (int i = 0; i < p->n; i++)
        if (i + 1 == p->n || sim_random(s, 3) == 0)
            p->piece_ends[p->npieces++] = i + 1;
    p->wait_late = sim_random(s, 3) == 0;
    p->pipelined = sim_random(s, 6) == 0;
}

static void add_item(struct sim_rank *r, const struct item *it, bool wait, bool wrong)
{
    uint32_t n = it->group ? it->group : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct sim_step step = {.what = SIM_SUBMIT,
                                .name = it->name + (int)i,
                                .group = i == 0 ? n : 0,
                                .version = it->version,
                                .sig = it->sig};
        if (it->group) {
            step.sig.group_size = n;
            step.sig.group_index = i;
            step.sig.group_hash = (uint64_t)it->name * 100 + n;
        }
        if (it->group > 2 && it->sig.device >= 0 && i == 1)
            step.sig.device = -1; /* members in several batches */
        if (wrong && it->sig.device < 0)
            step.sig.dtype = HVD_FLOAT64;
        if (wait)
            step = (struct sim_step){.what = SIM_WAIT, .name = step.name};
        sim_add(r, &step);
    }
}

static void add_shuffled(struct sim *s, struct sim_rank *r, const struct pattern *p, int from,
                         int to, bool wait, int wrong)
{
    int order[MAX_ITEMS];
    for (int i = from; i < to; i++)
        order[i] = i;
    /* A pipelined rank waits between its submissions: see add_round(). */
    bool shuffle = !p->gpus || !p->pipelined;
    for (int i = to - 1; i > from && shuffle && sim_random(s, 4) != 0; i--) {
        int k = from + (int)sim_random(s, (uint64_t)(i - from + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (int i = from; i < to; i++) {
        if (!wait) /* the operation may still be in flight */
            add_item(r, &p->items[order[i]], true, false);
        add_item(r, &p->items[order[i]], wait, order[i] == wrong);
    }
}

static void add_round(struct sim *s, const struct pattern *p, const bool *out)
{
    int wrong_rank = -1, wrong = -1;
    if (s->n > 1 && sim_random(s, 60) == 0) {
        wrong_rank = (int)sim_random(s, (uint64_t)s->n);
        wrong = (int)sim_random(s, (uint64_t)p->n);
    }
    bool same = p->wait_late != (sim_random(s, 6) == 0);
    for (int i = 0; i < s->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        if (out[i])
            continue;
        int bad = i == wrong_rank ? wrong : -1;
        /* One rank must not wait for a bound batch before it submits what another rank submits
         * without waiting: see test_conflict. */
        bool late = p->gpus ? same : p->wait_late != (sim_random(s, 6) == 0);
        for (int k = 0, from = 0; k < p->npieces; from = p->piece_ends[k++]) {
            add_shuffled(s, r, p, from, p->piece_ends[k], false, bad);
            if (!late && !p->pipelined)
                add_shuffled(s, r, p, from, p->piece_ends[k], true, -1);
            if (sim_random(s, 20) == 0)
                sim_sleep(r, sim_random(s, sim_random(s, 8) ? 5000000 : 500000000));
        }
        if (late && !p->pipelined)
            add_shuffled(s, r, p, 0, p->n, true, -1);
    }
}

static void add_join(struct sim *s, bool *out, int rank)
{
    out[rank] = true;
    sim_add(&s->ranks[rank], &(struct sim_step){.what = SIM_JOIN});
}

/* Sometimes a rank runs out of work, until all have. */
static void run_out(struct sim *s, bool *out, bool all)
{
    int left = 0;
    for (int i = 0; i < s->n; i++)
        left += !out[i];
    for (int i = 0; i < s->n; i++)
        if (!out[i] && (all || sim_random(s, 6) == 0)) {
            add_join(s, out, i);
            left--;
        }
    if (left == 0)
        memset(out, 0, SIM_RANKS * sizeof(*out));
}

/* A small change of the program, the same on every rank. */
static void mutate(struct sim *s, struct pattern *p)
{
    struct item *it = &p->items[sim_random(s, (uint64_t)p->n)];
    for (int i = 0; i < p->n; i++) /* row counts of allgather and alltoall change often */
        if (p->items[i].sig.kind == HVD_ALLGATHER || p->items[i].sig.kind == HVD_ALLTOALL)
            p->items[i].version += sim_random(s, 2);
    switch (sim_random(s, 4)) {
    case 0:
        it->version++;
        if (it->sig.kind == HVD_ALLREDUCE)
            it->sig.shape[0] = 1 + (int64_t)sim_random(s, 2500);
        break;
    case 1:
        p->wait_late = !p->wait_late;
        break;
    case 2:
        if (p->n > 1) {
            p->n--;
            p->npieces = 1;
            p->piece_ends[0] = p->n;
        }
        break;
    default:
        new_pattern(s, p, MAX_ITEMS / 2);
    }
}

static void random_options(uint64_t seed, struct sim_options *o)
{
    struct sim dice = {.rng = seed * 0x9e3779b97f4a7c15ULL + 77};
    for (int i = 0; i < 10; i++)
        sim_random(&dice, 2);
    *o = (struct sim_options){
        .n = 1 + (int)sim_random(&dice, 8),
        .fan = (int)sim_random(&dice, 5),
        .fusion_bytes = 1 + sim_random(&dice, 4) * 8000,
        .cycle_ns = 1000 + sim_random(&dice, 3) * 100000,
        .cache_capacity = (uint32_t[]){0, 1, 3, 10, 1000, 1000, 1000, 1000}[sim_random(&dice, 8)],
        .freeze_after = (uint32_t)sim_random(&dice, 5),
        .stall_ns = (uint64_t[]){0, 20000000, 60000000000}[sim_random(&dice, 3)],
    };
}

struct totals {
    uint64_t frozen, thaws, fast, owed, neutral;
};

static bool random_world(uint64_t seed, struct totals *totals)
{
    struct sim_options o;
    struct sim s;
    struct pattern patterns[3];
    random_options(seed, &o);
    sim_init(&s, seed, &o);
    int npatterns = 1 + (int)sim_random(&s, 3);
    bool gpus = sim_random(&s, 2);
    for (int i = 0; i < npatterns; i++) {
        patterns[i].gpus = gpus;
        new_pattern(&s, &patterns[i], 1 + (int)sim_random(&s, MAX_ITEMS / 2));
    }
    int rounds = 1 + (int)sim_random(&s, 40);
    uint64_t calm = 3 + sim_random(&s, 20);
    bool joins = sim_random(&s, 3) == 0, out[SIM_RANKS] = {false};
    for (int i = 0; i < rounds; i++) {
        struct pattern *p = &patterns[i % npatterns];
        if (sim_random(&s, calm) == 0)
            mutate(&s, p);
        if (joins && sim_random(&s, 4) == 0)
            run_out(&s, out, false);
        add_round(&s, p, out);
    }
    if (joins)
        run_out(&s, out, true);
    for (int i = 0; i < s.n; i++)
        for (int name = 0; name < SIM_NAMES; name++)
            sim_wait(&s.ranks[i], name);
    bool ok = sim_run(&s);
    if (!ok)
        print_error("%s\n", s.why);
    for (int i = 0; i < s.n && ok; i++)
        if (s.ranks[i].lost[0]) {
            print_error("rank %d: %s\n", i, s.ranks[i].lost);
            ok = false;
        }
    struct negotiate_stats stats;
    for (int i = 0; i < s.n; i++) {
        negotiate_get_stats(s.ranks[i].n, &stats);
        totals->owed += stats.owed;
        totals->neutral += s.ranks[i].neutrals;
    }
    negotiate_get_stats(s.ranks[0].n, &stats);
    totals->frozen += stats.frozen;
    totals->thaws += stats.thaws;
    totals->fast += s.ranks[0].fast;
    sim_fini(&s);
    return ok;
}

static void test_random_worlds(void **state)
{
    const char *one = getenv("HVD_SIM_SEED"), *many = getenv("HVD_SIM_SEEDS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t last = one ? first : many ? strtoull(many, NULL, 10) : SEEDS;
    struct totals t = {0};
    for (uint64_t seed = first; seed <= last; seed++)
        if (!random_world(seed, &t))
            fail_msg("HVD_SIM_SEED=%llu", (unsigned long long)seed);
    print_message("%llu frozen batches, %llu by the fast path, %llu thaws, %llu owed batches, "
                  "%llu neutral elements\n",
                  (unsigned long long)t.frozen, (unsigned long long)t.fast,
                  (unsigned long long)t.thaws, (unsigned long long)t.owed,
                  (unsigned long long)t.neutral);
    if (!one && !many)
        assert_true(t.frozen > 1000 && t.thaws > 30 && t.fast > 100 && t.owed > 0 &&
                    t.neutral > 1000);
}

/* Ids are evicted while ranks of one host announce one tensor, some by its id and some in full. */
static void test_ragged_with_a_tiny_cache(void **state)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct sim s;
        struct sim_options o = {.n = 6,
                                .fan = 1 + (int)(seed % 3),
                                .fusion_bytes = 1000,
                                .cycle_ns = 1000,
                                .cache_capacity = 1 + seed % 2};
        sim_init(&s, seed, &o);
        struct signature sig = sim_allgather();
        uint64_t versions[4] = {0};
        for (int round = 0; round < 20; round++) {
            int one = (int)sim_random(&s, 4), two = (int)sim_random(&s, 4);
            versions[one] += sim_random(&s, 2);
            for (int i = 0; i < s.n; i++) {
                bool turned = sim_random(&s, 2);
                sim_submit(&s.ranks[i], turned ? two : one, &sig, versions[turned ? two : one]);
                if (i < o.fan) /* the root's host is late with the second */
                    sim_sleep(&s.ranks[i], 200000);
                if (one != two)
                    sim_submit(&s.ranks[i], turned ? one : two, &sig, versions[turned ? one : two]);
                sim_wait(&s.ranks[i], one);
                sim_wait(&s.ranks[i], two);
            }
        }
        if (!sim_run(&s))
            fail_msg("%s", s.why);
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_worlds),
        cmocka_unit_test(test_ragged_with_a_tiny_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
