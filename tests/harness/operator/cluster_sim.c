/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_sim: the simulated operator, and the rules that are checked. See cluster_sim.h.
 */
#include "tests/harness/operator/cluster_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/words.h"
#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/reconcile/names.h"
#include "operator/reconcile/workers.h"

#define DRAIN_LIMIT (60 * MOMENT_S)
#define TURMOIL     250  /* turns with faults */
#define CALM        6000 /* turns without faults, after which all jobs must have settled */

static const char *const bug_names[SIM_BUGS] = {
    "none",     "status last",    "status blind", "count twice", "forget names",
    "one more", "too early",      "keep workers", "run again",   "busy time",
    "talk",     "delete by name", "blind queue"};

const char *cluster_sim_bug_name(enum sim_bug bug)
{
    return bug_names[bug];
}

/* ---- the operator's caches ------------------------------------------------------------------- */

struct view {
    struct pod pods[SIM_PODS];
    const struct pod *list[SIM_PODS];
    int n;
};

static void look(struct cluster_sim *s, int job, struct view *v)
{
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "job%d-", job);
    v->n = 0;
    for (int i = 0; i < SIM_PODS; i++) {
        struct sim_pod *p = &s->seen[i];
        if (!p->used || strncmp(p->name, prefix, strlen(prefix)) != 0)
            continue;
        struct pod *to = &v->pods[v->n];
        *to = (struct pod){.name = p->name,
                           .worker = p->worker,
                           .attempt = p->attempt,
                           .phase = p->phase,
                           .deleting = p->deleting,
                           .leaves_by = p->deleting ? p->gone_at : MOMENT_NONE,
                           .disrupted = p->disrupted,
                           .created = p->created,
                           .exit_code = p->exit_code,
                           .node = p->node >= 0 ? s->nodes[p->node].name : NULL};
        memcpy(to->uid, p->uid, sizeof(p->uid));
        memcpy(to->owner, p->owner, sizeof(p->owner));
        v->list[v->n++] = to;
    }
}

/* The nodes with a signal; they are sorted by name. */
static void see_drains(const struct cluster_sim *s, struct drain_node all[SIM_NODES],
                       struct drains *ret)
{
    *ret = (struct drains){all, 0, DRAIN_LIMIT};
    for (int i = 0; i < SIM_NODES; i++)
        if (s->signals[i].drain.action != SIGNAL_NONE)
            all[ret->n++] = s->signals[i];
}

static const struct gang_ops *gates(void)
{
    struct hvdjob job = {.backend = GANG_GATES};
    char api[8];
    return gang_choose(&job, "", api, sizeof(api), NULL);
}

/* Returns the queue's decision about a job. */
static struct admission admission_for(struct cluster_sim *s, int job)
{
    static struct view v;
    struct queue_job jobs[SIM_JOBS];
    struct demand demands[SIM_JOBS];
    struct resources used[SIM_NODES];
    struct cluster c = {.n = SIM_NODES, .nodes = s->nodes, .used = used};
    int n = 0;
    cluster_sim_used(s, used);
    for (int i = 0; i < SIM_JOBS; i++) {
        struct workers w;
        if (!s->jobs[i].there)
            continue;
        look(s, i, &v);
        if (workers_init(&w, &s->jobs[i].job, &s->jobs[i].job.status, v.list, v.n, NULL) < 0)
            abort();
        demands[n] = (struct demand){.spec = s->jobs[i].job.podspec};
        jobs[n] = (struct queue_job){.job = &s->jobs[i].job,
                                     .demand = &demands[n],
                                     .gates = true,
                                     .alive = w.alive,
                                     .bound = w.bound};
        n++;
        workers_fini(&w);
    }
    struct queue_input in = {.jobs = jobs,
                             .n = n,
                             .cluster = s->blind ? NULL : &c,
                             .policy = {.share = 100, .probes = 1},
                             .now = s->now};
    if (queue_decide(&in) < 0)
        abort();
    for (int i = 0; i < n; i++)
        if (jobs[i].job == &s->jobs[job].job)
            return jobs[i].ret;
    abort();
}

/* ---- rules ---------------------------------------------------------------------------------- */

static int alive_of(const struct cluster_sim *s, int job, bool bound)
{
    int n = 0;
    for (int i = 0; i < SIM_PODS; i++)
        n += cluster_sim_alive(&s->pods[i]) &&
             strcmp(s->pods[i].owner, s->jobs[job].job.uid) == 0 &&
             (!bound || s->pods[i].node >= 0);
    return n;
}

/* The workers of the job that the scheduler will place, of an elastic one without those beyond
 * minWorkers: the queue deletes these when another gang needs their room. */
static int pending_of(const struct cluster_sim *s, int job)
{
    const struct hvdjob *j = &s->jobs[job].job;
    int pending = 0, bound = 0;
    for (int i = 0; i < SIM_PODS; i++) {
        const struct sim_pod *p = &s->pods[i];
        if (!cluster_sim_alive(p) || p->job != job ||
            p->attempt < hvdjob_status_attempt(&j->status, p->worker))
            continue;
        pending += p->node < 0;
        bound += p->node >= 0;
    }
    int missing = j->min > bound ? j->min - bound : 0;
    return j->elastic && pending > missing ? missing : pending;
}

/* Rule, without faults and with a current cache: an admitted gang fits beside everything that the
 * scheduler may place. */
static void check_room(struct cluster_sim *s, const struct sim_job *j)
{
    struct resources used[SIM_NODES];
    int room = 0;
    cluster_sim_used(s, used);
    for (int i = 0; i < SIM_NODES; i++) {
        int64_t left =
            s->nodes[i].allocatable.amount[RESOURCES_CPU] - used[i].amount[RESOURCES_CPU];
        room += left > 0 ? (int)(left / 1000) : 0;
    }
    for (int i = 0; i < SIM_JOBS; i++)
        room -= s->jobs[i].there ? pending_of(s, i) : 0;
    if (room < j->job.min)
        cluster_sim_wrong(s, "%s: admitted where %d fit", j->job.name, room);
}

static void check_status(struct cluster_sim *s, struct sim_job *j, const struct hvdjob_status *to)
{
    const struct hvdjob_status *from = &j->job.status;
    if (job_phase_finished(from->phase) && to->phase != from->phase)
        cluster_sim_wrong(s, "%s: from %s to %s", j->job.name, job_phase_name(from->phase),
                          job_phase_name(to->phase));
    if (to->failures > from->failures)
        j->counted += to->failures - from->failures;
    if (j->counted > j->failed)
        cluster_sim_wrong(s, "%s: %d failures counted, there were %d", j->job.name, j->counted,
                          j->failed);
    for (int i = 0; i < CONDITIONS; i++) {
        const struct condition *a = &from->conditions[i], *b = &to->conditions[i];
        if (a->status == b->status && a->since != b->since)
            cluster_sim_wrong(s, "%s: condition %s: its time moved, its status did not",
                              j->job.name, condition_name((enum condition_type)i));
        if (b->status != CONDITION_ABSENT && (!b->reason[0] || !b->message))
            cluster_sim_wrong(s, "%s: condition %s says nothing", j->job.name,
                              condition_name((enum condition_type)i));
    }
    if (!to->message)
        cluster_sim_wrong(s, "%s: no message in phase %s", j->job.name, job_phase_name(to->phase));
    s->rollbacks += to->rollbacks > from->rollbacks;
    if (s->calm && !s->blind && j->job.probe == 0 && from->rollbacks == 0 &&
        to->phase == JOB_STARTING && from->phase != JOB_STARTING)
        check_room(s, j);
    /* A rollback here means that the queue reserved the same resources twice. (A gang that was
     * admitted for an autoscaler has no reservation.) */
    if (j->job.probe == 0 && to->rollbacks > 0 && from->rollbacks == 0 && s->calm && !s->blind &&
        from->admitted > s->calm_since + 100 * MOMENT_S)
        cluster_sim_wrong(s, "%s: it was admitted, fitted, and got no nodes", j->job.name);
}

/* Rule: a worker is made only if the status says that its gang is admitted. */
static void check_admitted(struct cluster_sim *s, const struct sim_job *j)
{
    enum job_phase phase = j->job.status.phase;
    if (phase != JOB_STARTING && phase != JOB_RUNNING && phase != JOB_WAITING)
        cluster_sim_wrong(s, "%s: a worker is made in phase %s", j->job.name,
                          job_phase_name(phase));
}

/* ---- actions -------------------------------------------------------------------------------- */

/* Writes a status. Like all functions that execute an action, returns 0, or -errno as the API
 * server would: then the remaining actions are dropped. */
static int write_status(struct cluster_sim *s, struct sim_job *j, int version,
                        const struct hvdjob_status *status)
{
    struct hvdjob_status read;
    auto_json json_t *json = hvdjob_status_write(status, "x");
    if (j->version != version && s->bug != BUG_STATUS_BLIND)
        return -EAGAIN;
    if (!json || hvdjob_status_parse(json, &read, NULL) < 0)
        abort();
    if (s->bug == BUG_RUN_AGAIN && read.phase == JOB_SUCCEEDED && cluster_sim_random(s, 4) == 0)
        read.phase = JOB_QUEUED;
    if (s->bug == BUG_COUNT_TWICE && read.failures > j->job.status.failures)
        read.failures++;
    if (s->bug == BUG_FORGET_NAMES)
        read.nretries = 0;
    if (s->bug == BUG_BUSY_TIME)
        read.conditions[CONDITION_VALID].since = moment_whole(s->now);
    if (s->bug == BUG_RUN_AGAIN && j->job.status.phase == JOB_SUCCEEDED)
        read.phase = JOB_QUEUED;
    check_status(s, j, &read);
    hvdjob_status_fini(&j->job.status);
    j->job.status = read;
    j->version++;
    return 0;
}

static int create_pod(struct cluster_sim *s, int job, const struct action *a, int wanted)
{
    struct sim_job *j = &s->jobs[job];
    char name[NAMES_MAX];
    names_pod(&j->job, a->worker, a->attempt, name);
    struct sim_pod *p = cluster_sim_find(s, name);
    if (p)
        return strcmp(p->owner, j->job.uid) == 0 ? 0 : -EEXIST;
    p = cluster_sim_make_pod(s, name);
    if (!p)
        return -ENOSPC;
    p->job = job;
    p->worker = a->worker;
    p->attempt = a->attempt;
    snprintf(p->owner, sizeof(p->owner), "%s", j->job.uid);
    int most = wanted > j->job.workers ? wanted : j->job.workers;
    if (alive_of(s, job, false) > most)
        cluster_sim_wrong(s, "%s: %d workers, at most %d are wanted", j->job.name,
                          alive_of(s, job, false), most);
    if (job_phase_finished(j->job.status.phase))
        cluster_sim_wrong(s, "%s: a worker is made although it has ended", j->job.name);
    check_admitted(s, j);
    return 0;
}

static int delete_pod(struct cluster_sim *s, const struct sim_job *j, const struct pod *pod)
{
    struct sim_pod *p = cluster_sim_find(s, pod->name);
    if (!p || (strcmp(p->uid, pod->uid) != 0 && s->bug != BUG_DELETE_BY_NAME))
        return 0;
    if (p->foreign || strcmp(p->owner, j->job.uid) != 0 || strcmp(p->uid, pod->uid) != 0)
        cluster_sim_wrong(s, "%s: deleted %s (%s), which is another one's", j->job.name, p->name,
                          p->uid);
    if (!p->deleting) {
        p->deleting = true;
        p->gone_at = s->now + cluster_sim_random(s, 20000);
    }
    return 0;
}

/* A race: the pod vanishes just before it is deleted, and another one gets its name. */
static void take_name(struct cluster_sim *s, const struct pod *pod)
{
    struct sim_pod *p = cluster_sim_find(s, pod->name);
    if (!p || p->foreign || s->calm || cluster_sim_random(s, 30) > 0)
        return;
    p->used = false;
    p = cluster_sim_make_pod(s, pod->name);
    if (p)
        p->foreign = true;
}

static int apply(struct cluster_sim *s, int job, int version, int wanted, const struct actions *all,
                 const struct action *a)
{
    struct sim_job *j = &s->jobs[job];
    if (!j->there)
        return -ENOENT;
    switch (a->kind) {
    case ACTION_WRITE_STATUS:
        return write_status(s, j, version, &all->status);
    case ACTION_CREATE_POD:
        return create_pod(s, job, a, wanted);
    case ACTION_DELETE_POD:
        if (s->bug == BUG_KEEP_WORKERS && !job_phase_finished(j->job.status.phase))
            return 0;
        take_name(s, a->pod);
        return delete_pod(s, j, a->pod);
    case ACTION_DELETE_JOB:
        j->there = false;
        return 0;
    case ACTION_RECORD_EVENT:
        if (!all->events[a->event].text[0])
            cluster_sim_wrong(s, "%s: an event that says nothing", j->job.name);
        return 0;
    case ACTION_CREATE_GROUP:
        cluster_sim_wrong(s, "%s: a PodGroup, which its back end has not", j->job.name);
    }
    return 0;
}

/* Applies a planted bug to the actions. */
static void spoil(struct cluster_sim *s, struct actions *a)
{
    struct action last;
    if (s->bug == BUG_STATUS_LAST && a->n > 1 && a->all[0].kind == ACTION_WRITE_STATUS) {
        last = a->all[0];
        memmove(a->all, a->all + 1, (size_t)(a->n - 1) * sizeof(*a->all));
        a->all[a->n - 1] = last;
    }
    for (int i = 0; i < a->n; i++)
        if (s->bug == BUG_ONE_MORE && a->all[i].kind == ACTION_CREATE_POD) {
            last = a->all[i];
            last.worker += 100;
            actions_add(a, last, NULL);
            break;
        }
    if (s->bug == BUG_TOO_EARLY && a->status.phase == JOB_QUEUED)
        actions_add(a, (struct action){.kind = ACTION_CREATE_POD}, NULL);
    if (s->bug == BUG_TALK) {
        snprintf(a->events[ACTION_EVENT_PHASE].text, sizeof(a->events[ACTION_EVENT_PHASE].text),
                 "hello");
        actions_add(a, (struct action){.kind = ACTION_RECORD_EVENT}, NULL);
    }
}

static void send_late(struct cluster_sim *s, int job, int version, const struct actions *all,
                      const struct action *a)
{
    struct sim_late *l = &s->late;
    if (l->used || (a->kind != ACTION_WRITE_STATUS && a->kind != ACTION_DELETE_POD))
        return;
    *l = (struct sim_late){.used = true, .job = job, .version = version, .kind = a->kind};
    if (a->kind == ACTION_WRITE_STATUS) {
        if (hvdjob_status_copy(&all->status, &l->status, NULL) < 0)
            abort();
        return;
    }
    memcpy(l->name, a->pod->name, strlen(a->pod->name) + 1);
    memcpy(l->uid, a->pod->uid, sizeof(l->uid));
}

static void arrive_late(struct cluster_sim *s)
{
    struct sim_late *l = &s->late;
    struct pod pod = {.name = l->name};
    if (!l->used)
        return;
    l->used = false;
    memcpy(pod.uid, l->uid, sizeof(l->uid));
    if (s->jobs[l->job].there && l->kind == ACTION_WRITE_STATUS)
        write_status(s, &s->jobs[l->job], l->version, &l->status);
    else if (s->jobs[l->job].there)
        delete_pod(s, &s->jobs[l->job], &pod);
    hvdjob_status_fini(&l->status);
    s->fresh = true;
}

static void trace(const struct cluster_sim *s, const struct sim_job *j, const struct actions *a)
{
    if (!getenv("HVD_SIM_TRACE"))
        return;
    printf("%lld %s %s->%s:", (long long)(s->now / 1000 % 100000), j->job.name,
           job_phase_name(j->job.status.phase), job_phase_name(a->status.phase));
    for (int i = 0; i < a->n; i++)
        printf(" %s %d-%d", action_name(a->all[i].kind),
               a->all[i].pod ? a->all[i].pod->worker : a->all[i].worker,
               a->all[i].pod ? a->all[i].pod->attempt : a->all[i].attempt);
    printf(" | %s\n", words(a->status.message));
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void operate(struct cluster_sim *s, int job)
{
    static struct view v;
    struct sim_job *j = &s->jobs[job];
    struct drain_node nodes[SIM_NODES];
    struct drains drains;
    struct actions a;
    struct err err = {0};
    s->idle++;
    if (!j->there)
        return;
    /* Caches show the operator's own writes; those of others may come later. */
    if (s->fresh || s->calm || cluster_sim_random(s, 10) < 7)
        memcpy(s->seen, s->pods, sizeof(s->seen));
    s->fresh = false;
    struct admission admission = admission_for(s, job);
    if (s->bug == BUG_BLIND_QUEUE)
        admission.go = true;
    look(s, job, &v);
    see_drains(s, nodes, &drains);
    struct reconcile_input in = {.job = &j->job,
                                 .pods = v.list,
                                 .npods = v.n,
                                 .admission = &admission,
                                 .gang = gates(),
                                 .drains = s->blind ? NULL : &drains,
                                 .status_every = RECONCILE_STATUS_EVERY,
                                 .status_written = j->status_written,
                                 .now = s->now};
    if (reconcile(&in, &a, &err) < 0)
        cluster_sim_wrong(s, "%s: %s", j->job.name, err.msg);
    spoil(s, &a);
    trace(s, j, &a);
    s->idle = a.n == 0 ? s->idle : 0;
    j->again = a.again;
    int version = j->version, wanted = j->job.workers;
    for (int i = 0; i < a.n; i++) {
        s->fresh = true;
        if (!s->calm && cluster_sim_random(s, 20) == 0) {
            send_late(s, job, version, &a, &a.all[i]); /* the operator is killed here */
            break;
        }
        if (a.all[i].kind == ACTION_WRITE_STATUS)
            j->status_written = s->now;
        if (apply(s, job, version, wanted, &a, &a.all[i]) < 0)
            break;
        if (!s->calm && cluster_sim_random(s, 5) == 0)
            cluster_sim_world_step(s);
    }
    actions_fini(&a);
}

/* Rule: when nothing happens any more, a job is finished, or is queued and its status gives a
 * reason. */
static void check_rest(struct cluster_sim *s, int job)
{
    const struct sim_job *j = &s->jobs[job];
    enum job_phase phase = j->job.status.phase;
    int alive = alive_of(s, job, false);
    if (j->there && phase == JOB_QUEUED && !j->job.status.message)
        cluster_sim_wrong(s, "%s: queued, and the status gives no reason", j->job.name);
    else if (j->there && !job_phase_finished(phase))
        cluster_sim_wrong(s, "%s: still %s (%s)", j->job.name, job_phase_name(phase),
                          words(j->job.status.message));
    else if (!j->there ? alive : alive && j->job.clean != CLEAN_NONE)
        cluster_sim_wrong(s, "%s: %d workers left", j->job.name, alive);
}

static bool resting(const struct cluster_sim *s)
{
    for (int i = 0; i < SIM_JOBS; i++)
        if (s->jobs[i].there && !job_phase_finished(s->jobs[i].job.status.phase))
            return false;
    return s->idle > 20 * SIM_JOBS;
}

/* Makes the cluster large enough for each gang alone, so that all jobs can finish. */
static void make_room(struct cluster_sim *s)
{
    for (int i = 0; i < SIM_NODES; i++)
        s->nodes[i].allocatable.amount[RESOURCES_CPU] = 2000;
}

bool cluster_sim_run(struct cluster_sim *s, uint64_t seed, enum sim_bug bug)
{
    cluster_sim_world_init(s, seed);
    s->bug = bug;
    for (int i = 0; i < TURMOIL && !s->why[0]; i++) {
        operate(s, (int)cluster_sim_random(s, SIM_JOBS));
        cluster_sim_world_step(s);
        if (cluster_sim_random(s, 10) == 0)
            arrive_late(s);
    }
    arrive_late(s);
    s->calm = true;
    s->calm_since = s->now;
    make_room(s);
    int turns = 0;
    for (; turns < CALM && !s->why[0] && !resting(s); turns++) {
        operate(s, turns % SIM_JOBS);
        cluster_sim_world_step(s);
    }
    for (int i = 0; i < SIM_JOBS && !s->why[0]; i++)
        check_rest(s, i);
    if (turns == CALM)
        cluster_sim_wrong(s, "the operator never comes to rest");
    cluster_sim_world_fini(s);
    return !s->why[0];
}
