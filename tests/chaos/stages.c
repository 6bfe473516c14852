/* SPDX-License-Identifier: Apache-2.0
 *
 * stages DIR --replicas R --stages S [--seed N] [--pace MS]: a rank of the chaos run of units, in a
 * job that keeps places: R replicas of a pipeline of S stages, at the places replica * S + stage.
 * Neighbours in a pipeline have a fixed set, so each replica is a unit. Each stage has a value, and
 * computes the next one from its neighbours' and, in the last stage, from a message of the first
 * one. All replicas have the same values, which replicas.py computes without a job.
 *
 * While its unit is broken a rank only commits. What it has missed comes from the same stage of
 * another replica. The run ends at the same step on all ranks, once the file DIR/stop is there.
 *
 * Lines of the record (record.h): start, hello, world (e, rank, size, place, new), state (step,
 * value: taken from another replica), value (step, place, value: the result of this step), dead
 * (step, place: the step failed with -EOWNERDEAD), and end, left or fail. Exit codes as worker.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/hash.h"
#include "tests/chaos/ends.h"
#include "tests/chaos/plan.h"
#include "tests/chaos/record.h"

enum { PRIME = 999983, TAG = 5, SETS_MAX = 64, PLACES_MAX = 16, START_US = 200000 };
enum { MOST = 100000 }; /* elements of a tensor */

struct rank {
    const char *dir;
    uint64_t seed, pace_ms, random;
    struct record record;
    int replicas, stages, place, replica, stage;
    int all, before, after, same; /* sets; before, after: 0 where this stage has no neighbour */
    /* What a rank takes from another replica; `step` is the next one. */
    int64_t step, value, stop;
};

static int fail(struct rank *r, const char *what, int rc)
{
    return record_fail(&r->record, (uint64_t)r->step, what, rc);
}

/* ---- operations ----------------------------------------------------------------------------- */

static int64_t length_of(const struct rank *r)
{
    static const int64_t lengths[] = {1, 600, 1, 9000, MOST};
    return lengths[r->step % 5];
}

static void fill(int64_t *data, int64_t n, int64_t value)
{
    for (int64_t i = 0; i < n; i++)
        data[i] = value;
}

/* -EBADMSG: not all elements are alike. */
static int read_alike(const int64_t *data, int64_t n, int64_t *ret)
{
    for (int64_t i = 1; i < n; i++)
        if (data[i] != data[0])
            return -EBADMSG;
    *ret = data[0];
    return 0;
}

static struct hvd_request request(const char *name, int set, int64_t *data, const int64_t *n)
{
    return (struct hvd_request){.kind = HVD_ALLREDUCE,
                                .name = name,
                                .input = data,
                                .output = data,
                                .dtype = HVD_INT64,
                                .ndim = 1,
                                .shape = n,
                                .op = HVD_SUM,
                                .set = set,
                                .device = -1};
}

static int run(const struct hvd_request *r)
{
    hvd_handle h;
    int rc = hvd_submit(r, 1, &h);
    return rc < 0 ? rc : hvd_wait(h);
}

static int find_most(int set, const char *name, int64_t *data, int64_t n)
{
    struct hvd_request q = request(name, set, data, &n);
    q.op = HVD_MAX;
    return run(&q);
}

/* The sums with both neighbours, which are in flight together. They are submitted, and waited for,
 * in any order; a rank that waits for one set and not yet for the other one blocks neither. */
static int add_neighbours(struct rank *r, int64_t *ret_before, int64_t *ret_after)
{
    static int64_t data[2][MOST];
    const int sets[] = {r->before, r->after};
    char names[2][16];
    int64_t n = length_of(r), *const results[] = {ret_before, ret_after};
    hvd_handle handles[2] = {0, 0};
    int rc[2] = {0, 0}, first = (int)(plan_random(&r->random) % 2);
    for (int k = 0; k < 2; k++) {
        int i = (first + k) % 2;
        fill(data[i], n, r->value);
        snprintf(names[i], sizeof(names[i]), "pair %d",
                 r->stage - 1 + i); /* on both of its ranks */
        struct hvd_request q = request(names[i], sets[i], data[i], &n);
        rc[i] = sets[i] ? hvd_submit(&q, 1, &handles[i]) : 0;
    }
    first = (int)(plan_random(&r->random) % 2);
    for (int k = 0; k < 2; k++) {
        int i = (first + k) % 2;
        *results[i] = 0;
        if (handles[i] && (rc[i] = hvd_wait(handles[i])) == 0)
            rc[i] = read_alike(data[i], n, results[i]);
    }
    return rc[0] < 0 ? rc[0] : rc[1];
}

/* -1: the place is free. */
static int rank_at(int place)
{
    int places[PLACES_MAX], n = hvd_places(places, PLACES_MAX);
    for (int i = 0; i < n && i < PLACES_MAX; i++)
        if (places[i] == place)
            return i;
    return -1;
}

/* The first stage sends its value to the last one, where it becomes *ret; elsewhere that is 0. */
static int pass(struct rank *r, int64_t *ret)
{
    static int64_t data[MOST];
    bool sends = r->stage == 0;
    *ret = 0;
    if (!sends && r->stage != r->stages - 1)
        return 0;
    int peer = rank_at(r->replica * r->stages + (sends ? r->stages - 1 : 0));
    if (peer < 0)
        return -EOWNERDEAD;
    int64_t n = length_of(r);
    size_t bytes = (size_t)n * sizeof(*data);
    fill(data, n, r->value);
    if (sends)
        return hvd_send(data, (int64_t)bytes, peer, TAG, 0);
    int rc = hvd_recv(data, (int64_t)bytes, peer, TAG, 0, NULL);
    return rc < 0 ? rc : read_alike(data, n, ret);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Every rank that is not part of a broken unit has done this step. *ret_stop: whether one of them
 * has seen the file. */
static int end_step(struct rank *r, int64_t *ret_stop)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/stop", r->dir);
    int64_t most[2] = {r->step, access(path, F_OK) == 0};
    int rc = find_most(r->all, "all", most, 2);
    *ret_stop = most[1];
    return rc < 0 ? rc : most[0] == r->step ? 0 : -EBADMSG;
}

static int run_step(struct rank *r)
{
    int64_t before = 0, after = 0, passed = 0, stop = 0;
    int rc = add_neighbours(r, &before, &after);
    if (rc == 0)
        rc = pass(r, &passed);
    if (rc < 0)
        return rc;
    int64_t next = (r->value * 31 + before + after + passed + r->stage + r->step) % PRIME;
    int64_t most = next;
    rc = find_most(r->same, "same", &most, 1);
    if (rc == 0 && most != next)
        rc = -EBADMSG;
    if (rc == 0)
        rc = end_step(r, &stop);
    if (rc < 0)
        return rc;
    record_line(&r->record, "value", "\"step\": %" PRId64 ", \"place\": %d, \"value\": %" PRId64,
                r->step, r->place, next);
    r->value = next;
    r->stop = stop;
    r->step++;
    return 0;
}

/* What this rank has missed comes from another replica. Nothing happens while its unit is broken.
 */
static int take_state(struct rank *r)
{
    int64_t state[] = {r->step, r->value, r->stop}, n = 3;
    struct hvd_request q = request("state", r->same, state, &n);
    int source = hvd_set_source(r->same);
    if (source == -ENODATA)
        return 0;
    q.kind = HVD_BROADCAST;
    q.root = source;
    int rc = source < 0 ? source : run(&q);
    if (rc == -EOWNERDEAD)
        return 0;
    if (rc < 0)
        return fail(r, "the state", rc);
    if (r->step != state[0] || r->value != state[1])
        record_line(&r->record, "state", "\"step\": %" PRId64 ", \"value\": %" PRId64, state[0],
                    state[1]);
    r->step = state[0];
    r->value = state[1];
    r->stop = state[2];
    return 0;
}

static int look_at_world(struct rank *r)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int rc = hvd_world(&w);
    if (rc < 0)
        return fail(r, "hvd_world", rc);
    record_line(&r->record, "world",
                "\"step\": %" PRId64 ", \"e\": %" PRIu32
                ", \"rank\": %d, \"size\": %d, \"place\": %d, \"new\": %d",
                r->step, w.epoch, w.rank, w.size, hvd_place(), w.is_new);
    return 0;
}

static int boundary(struct rank *r)
{
    int changed = hvd_commit();
    if (changed < 0)
        return changed == -ESHUTDOWN ? changed : fail(r, "hvd_commit", changed);
    if (hvd_place() != r->place)
        return fail(r, "another place", -EBADMSG);
    if (!changed)
        return 0;
    int rc = look_at_world(r);
    return rc == 0 ? take_state(r) : rc;
}

static int iterate(struct rank *r)
{
    int rc = run_step(r);
    if (rc == -EOWNERDEAD)
        record_line(&r->record, "dead", "\"step\": %" PRId64 ", \"place\": %d", r->step, r->place);
    else if (rc < 0)
        return fail(r, "a step", rc);
    if (r->pace_ms)
        usleep((useconds_t)r->pace_ms * 1000);
    return boundary(r);
}

/* ---- sets ----------------------------------------------------------------------------------- */

/* All ranks make the sets of all replicas, so they are known also when a whole replica is lost.
 * Numbers: 1 is the set of all places; the pairs follow. */
static int number_of_pair(const struct rank *r, int first)
{
    return 2 + r->replica * (r->stages - 1) + first;
}

static void note_sets(struct rank *r)
{
    r->all = 1;
    r->before = r->stage > 0 ? number_of_pair(r, r->stage - 1) : 0;
    r->after = r->stage < r->stages - 1 ? number_of_pair(r, r->stage) : 0;
}

static int make_sets(struct rank *r)
{
    int all[PLACES_MAX], same[PLACES_MAX], set = 0, rc = 0;
    char name[32];
    for (int p = 0; p < r->replicas * r->stages; p++)
        all[p] = p;
    rc = hvd_set_add(all, r->replicas * r->stages, &set);
    for (int p = 0; rc == 0 && p < r->replicas * r->stages; p++) {
        if (p % r->stages == r->stages - 1)
            continue;
        rc = hvd_set_add(all + p, 2, &set);
        if (rc == 0)
            rc = hvd_set_fix(set);
    }
    for (int d = 0; d < r->replicas; d++)
        same[d] = d * r->stages + r->stage;
    snprintf(name, sizeof(name), "same %d", r->stage);
    if (rc == 0)
        rc = hvd_set_form(name, same, r->replicas, &r->same);
    note_sets(r);
    return rc == 0 ? 0 : fail(r, "sets", rc);
}

/* A joiner is in the sets that have its place, and knows those that all ranks have made. */
static int find_sets(struct rank *r)
{
    char name[32];
    int sets[SETS_MAX], n = hvd_sets(sets, SETS_MAX);
    snprintf(name, sizeof(name), "same %d", r->stage);
    r->same = hvd_set_find(name);
    if (r->same < 0)
        return fail(r, name, r->same);
    note_sets(r);
    return n == 2 + r->replicas * (r->stages - 1) ? 0 : fail(r, "the number of sets", n);
}

/* ---- from beginning to end ------------------------------------------------------------------ */

/* A joiner enters at a boundary, by either call. */
static int join(struct rank *r)
{
    usleep((useconds_t)(plan_random(&r->random) % START_US));
    int rc = plan_random(&r->random) % 2 ? hvd_enter() : hvd_commit();
    return rc >= 0 ? 0 : rc == -ESHUTDOWN ? rc : fail(r, "to join", rc);
}

static int begin(struct rank *r)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    int rc = hvd_init();
    if (rc < 0)
        return rc == -ESHUTDOWN ? rc : fail(r, "hvd_init", rc);
    record_line(&r->record, "hello", "\"rank\": %d, \"place\": %d", hvd_rank(), hvd_place());
    rc = hvd_world(&w);
    bool joins = rc == 0 && w.is_new;
    if (joins)
        rc = join(r);
    signal(SIGTERM, SIG_DFL);
    if (rc != 0)
        return rc;
    r->place = hvd_place();
    r->replica = r->place / r->stages;
    r->stage = r->place % r->stages;
    r->value = r->stage + 1;
    rc = look_at_world(r);
    if (rc == 0)
        rc = joins ? find_sets(r) : make_sets(r);
    return rc == 0 && joins ? take_state(r) : rc;
}

static int work(struct rank *r)
{
    int rc = begin(r);
    while (rc == 0 && !r->stop)
        rc = iterate(r);
    if (rc == -ESHUTDOWN)
        record_line(&r->record, "left", "\"step\": %" PRId64, r->step);
    else if (rc == 0)
        record_line(&r->record, "end", "\"step\": %" PRId64 ", \"place\": %d, \"value\": %" PRId64,
                    r->step, r->place, r->value);
    else
        return rc;
    if (!hvd_initialized())
        return 0; /* it was asked to leave before admission */
    rc = hvd_shutdown();
    return rc < 0 ? fail(r, "hvd_shutdown", rc) : 0;
}

static int parse(struct rank *r, int argc, char **argv)
{
    *r = (struct rank){.seed = 1};
    if (argc < 2 || argc % 2 != 0)
        return -EINVAL;
    r->dir = argv[1];
    for (int i = 2; i < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0)
            r->seed = value;
        else if (strcmp(argv[i], "--pace") == 0)
            r->pace_ms = value;
        else if (strcmp(argv[i], "--replicas") == 0 && value <= PLACES_MAX)
            r->replicas = (int)value;
        else if (strcmp(argv[i], "--stages") == 0 && value <= PLACES_MAX)
            r->stages = (int)value;
        else
            return -EINVAL;
    }
    return r->replicas > 0 && r->stages > 1 && r->replicas * r->stages <= PLACES_MAX ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
    struct rank r;
    if (parse(&r, argc, argv) < 0) {
        fprintf(stderr, "usage: stages DIR --replicas R --stages S [--seed N] [--pace MS]\n");
        return 2;
    }
    ends_arm(r.dir, argv);
    int rc = record_open(&r.record, r.dir);
    if (rc < 0) {
        fprintf(stderr, "stages: %s: %s\n", r.dir, strerror(-rc));
        return 6;
    }
    const char *armed = getenv("HVD_TEST_FAIL");
    r.random = hash_mix((uint64_t)getpid() ^ r.seed);
    record_line(&r.record, "start",
                "\"uid\": \"%s\", \"pid\": %d, \"seed\": %" PRIu64 ", \"armed\": \"%s\"",
                r.record.uid, (int)getpid(), r.seed, armed ? armed : "");
    ends_note_early(&r.record);
    rc = work(&r);
    record_close(&r.record);
    return rc;
}
