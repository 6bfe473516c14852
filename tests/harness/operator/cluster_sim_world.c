/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_sim_world: everything but the operator: API server, scheduler, kubelets, users. See
 * cluster_sim.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "tests/harness/operator/cluster_sim.h"

#define SIM_START (INT64_C(1700000000) * MOMENT_S)

uint32_t cluster_sim_random(struct cluster_sim *s, uint32_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (uint32_t)(s->random >> 33) % below : 0;
}

static bool chance(struct cluster_sim *s, uint32_t in_thousand)
{
    return cluster_sim_random(s, 1000) < in_thousand;
}

void cluster_sim_wrong(struct cluster_sim *s, const char *fmt, ...)
{
    va_list ap;
    if (s->why[0])
        return;
    va_start(ap, fmt);
    vsnprintf(s->why, sizeof(s->why), fmt, ap);
    va_end(ap);
}

bool cluster_sim_alive(const struct sim_pod *p)
{
    return p->used && !p->foreign && !p->deleting && p->phase != POD_SUCCEEDED &&
           p->phase != POD_FAILED;
}

struct sim_pod *cluster_sim_find(struct cluster_sim *s, const char *name)
{
    for (int i = 0; i < SIM_PODS; i++)
        if (s->pods[i].used && strcmp(s->pods[i].name, name) == 0)
            return &s->pods[i];
    return NULL;
}

struct sim_pod *cluster_sim_make_pod(struct cluster_sim *s, const char *name)
{
    for (int i = 0; i < SIM_PODS; i++) {
        struct sim_pod *p = &s->pods[i];
        if (p->used)
            continue;
        *p = (struct sim_pod){.used = true, .node = -1, .job = -1, .created = s->now};
        snprintf(p->name, sizeof(p->name), "%s", name);
        snprintf(p->uid, sizeof(p->uid), "pod-%d", s->serial++);
        return p;
    }
    cluster_sim_wrong(s, "there are more than %d pods: they are never deleted", SIM_PODS);
    return NULL;
}

void cluster_sim_used(const struct cluster_sim *s, struct resources used[SIM_NODES])
{
    memset(used, 0, SIM_NODES * sizeof(*used));
    for (int i = 0; i < SIM_PODS; i++) {
        const struct sim_pod *p = &s->pods[i];
        if (!p->used || p->node < 0 || p->phase == POD_SUCCEEDED || p->phase == POD_FAILED)
            continue;
        used[p->node].amount[RESOURCES_CPU] += 1000;
        used[p->node].amount[RESOURCES_PODS] += 1;
    }
}

/* ---- setup ---------------------------------------------------------------------------------- */

static void make_node(struct cluster_sim *s, int i)
{
    auto_json json_t *j = NULL;
    char text[256];
    snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"n%d\"},\"status\":{\"allocatable\":{\"cpu\":\"%u\",\"pods\":"
        "9},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
        i, 2 + cluster_sim_random(s, 3));
    if (json_read(text, strlen(text), "node", &j, NULL) < 0 ||
        node_parse(j, &s->nodes[i], NULL) < 0)
        abort();
    s->node_up[i] = true;
    s->signals[i].name = s->nodes[i].name;
}

/* Job 0 is elastic, job 1 is not, and job 2 is elastic with half of the seeds. */
static void make_job(struct cluster_sim *s, int i)
{
    auto_json json_t *j = NULL;
    char text[768], sizes[96];
    bool elastic = i == 0 || (i == 2 && chance(s, 500));
    uint32_t min = 1 + cluster_sim_random(s, 3), workers = min + cluster_sim_random(s, 3);
    static const char *const cleans[] = {"Running", "All", "None"};
    static const char *const drains[] = {"Wait", "Shrink", "Restart", "Block"};
    if (elastic)
        snprintf(sizes, sizeof(sizes), "\"minWorkers\":%u,\"maxWorkers\":8,", min);
    else
        sizes[0] = '\0';
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"job%d\",\"namespace\":\"d\",\"uid\":\"uid-%d-%d\","
             "\"generation\":1,\"creationTimestamp\":\"2023-11-14T22:13:2%dZ\"},\"spec\":{%s"
             "\"workers\":%u,\"gang\":{\"timeoutSeconds\":%u,\"probeSeconds\":%u},\"runPolicy\":{"
             "\"backoffLimit\":%u,\"cleanPodPolicy\":\"%s\",\"drainPolicy\":\"%s\"%s},\"template\":"
             "{\"spec\":{"
             "\"containers\":[{\"command\":[\"x\"],\"resources\":{\"requests\":{\"cpu\":1}}}]}}}}",
             i, i, s->serial++, i, sizes, workers, 20 + cluster_sim_random(s, 60),
             chance(s, 500) ? 60 + cluster_sim_random(s, 300) : 0, cluster_sim_random(s, 5),
             cleans[cluster_sim_random(s, 3)], drains[cluster_sim_random(s, 4)],
             chance(s, 300) ? ",\"ttlSecondsAfterFinished\":50" : "");
    s->jobs[i] = (struct sim_job){.there = true, .version = 1};
    if (json_read(text, strlen(text), "job", &j, NULL) < 0 ||
        hvdjob_parse(j, &s->jobs[i].job, NULL) < 0 || s->jobs[i].job.refused)
        abort();
}

void cluster_sim_world_init(struct cluster_sim *s, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->random = seed * 2 + 1;
    for (int i = 0; i < 8; i++)
        cluster_sim_random(s, 2);
    s->now = SIM_START;
    s->fresh = true;
    s->blind = chance(s, 200);
    for (int i = 0; i < SIM_NODES; i++)
        make_node(s, i);
    for (int i = 0; i < SIM_JOBS; i++)
        make_job(s, i);
}

void cluster_sim_world_fini(struct cluster_sim *s)
{
    for (int i = 0; i < SIM_NODES; i++)
        node_fini(&s->nodes[i]);
    for (int i = 0; i < SIM_JOBS; i++)
        hvdjob_fini(&s->jobs[i].job);
}

/* ---- scheduler, kubelets, garbage collector -------------------------------------------------- */

static void schedule(struct cluster_sim *s, struct sim_pod *p)
{
    struct resources used[SIM_NODES];
    int first = (int)cluster_sim_random(s, SIM_NODES);
    if (p->node >= 0 || p->deleting || p->phase != POD_PENDING)
        return;
    cluster_sim_used(s, used);
    for (int k = 0; k < SIM_NODES; k++) {
        int i = (first + k) % SIM_NODES;
        if (!s->node_up[i] || drain_closes(&s->signals[i]) ||
            used[i].amount[RESOURCES_CPU] + 1000 > s->nodes[i].allocatable.amount[RESOURCES_CPU])
            continue;
        p->node = i;
        return;
    }
}

static void end(struct cluster_sim *s, struct sim_pod *p, int code, bool disrupted)
{
    p->phase = code || disrupted ? POD_FAILED : POD_SUCCEEDED;
    p->exit_code = code;
    p->disrupted = disrupted;
    if (p->job >= 0 && code && !disrupted && !p->deleting)
        s->jobs[p->job].failed++;
}

static void run_pod(struct cluster_sim *s, struct sim_pod *p)
{
    bool up = p->node >= 0 && s->node_up[p->node];
    if (p->deleting && s->now >= p->gone_at && (up || p->node < 0 || chance(s, 20)))
        p->used = false;
    if (!p->used || p->foreign || !up || p->phase == POD_SUCCEEDED || p->phase == POD_FAILED)
        return;
    if (p->phase == POD_PENDING) {
        if (chance(s, 500) && !p->deleting)
            p->phase = POD_RUNNING;
        else if (!s->calm && chance(s, 10))
            end(s, p, 0, true);
        return;
    }
    if (p->deleting && chance(s, 300))
        end(s, p, chance(s, 500) ? 0 : 143, false);
    else if (s->jobs[p->job].finishing && chance(s, 400))
        end(s, p, !s->calm && chance(s, 100) ? 1 : 0, false);
    else if (!s->calm && chance(s, 15))
        end(s, p, 1, false);
    else if (!s->calm && chance(s, 15))
        end(s, p, 137, true);
}

static void delete_pod(struct cluster_sim *s, struct sim_pod *p)
{
    if (p->deleting)
        return;
    p->deleting = true;
    p->gone_at = s->now + cluster_sim_random(s, 20000);
}

static void collect(struct cluster_sim *s, struct sim_pod *p)
{
    if (p->used && !p->foreign && !s->jobs[p->job].there && chance(s, 400))
        p->used = false;
}

/* ---- users and faults ----------------------------------------------------------------------- */

static void touch(struct sim_job *j)
{
    j->version++;
    j->job.generation++;
}

static void use_job(struct cluster_sim *s)
{
    struct sim_job *j = &s->jobs[cluster_sim_random(s, SIM_JOBS)];
    struct hvdjob *job = &j->job;
    if (!j->there)
        return;
    switch (cluster_sim_random(s, 8)) {
    case 0:
    case 1:
        if (!job->elastic)
            return;
        job->workers = job->min + (int)cluster_sim_random(s, (uint32_t)(job->max - job->min + 1));
        touch(j);
        break;
    case 2:
    case 3:
        job->suspend = !job->suspend;
        touch(j);
        break;
    case 4:
        j->finishing |= job->status.phase == JOB_RUNNING;
        break;
    case 5:
        /* Changes the template, and later changes it back. */
        job->template_hash[15] = job->template_hash[15] == 'x' ? 'y' : 'x';
        touch(j);
        break;
    case 6:
        if (chance(s, 150))
            j->there = false;
        break;
    default:
        if (chance(s, 150))
            job->deleting = true; /* foreground deletion: the job is deleted after its pods */
        break;
    }
}

static void upset_pod(struct cluster_sim *s)
{
    struct sim_pod *p = &s->pods[cluster_sim_random(s, SIM_PODS)];
    if (!p->used) {
        /* A name conflict: somebody else's pod with the name of a worker's. */
        char name[64];
        snprintf(name, sizeof(name), "job%u-%u-%u", cluster_sim_random(s, SIM_JOBS),
                 cluster_sim_random(s, 3), cluster_sim_random(s, 3));
        if (chance(s, 100) && !cluster_sim_find(s, name) && (p = cluster_sim_make_pod(s, name)))
            p->foreign = true;
        return;
    }
    if (!p->foreign && !chance(s, 500)) {
        delete_pod(s, p);
        return;
    }
    /* A forced deletion: the pod is gone at once, and sometimes another pod gets its name. */
    char name[64];
    memcpy(name, p->name, sizeof(name));
    p->used = false;
    if (chance(s, 300) && (p = cluster_sim_make_pod(s, name)))
        p->foreign = true;
}

static void upset_node(struct cluster_sim *s)
{
    int i = (int)cluster_sim_random(s, SIM_NODES);
    s->node_up[i] = !s->node_up[i];
    s->nodes[i].ready = s->node_up[i];
    for (int k = 0; k < SIM_PODS && !s->node_up[i]; k++)
        if (s->pods[k].used && s->pods[k].node == i)
            delete_pod(s, &s->pods[k]);
}

/* Somebody begins, changes or ends the drain of a node. */
static void upset_signal(struct cluster_sim *s)
{
    int i = (int)cluster_sim_random(s, SIM_NODES);
    bool ends = chance(s, 500);
    s->signals[i].drain.action =
        ends ? SIGNAL_NONE : (enum signal_action)cluster_sim_random(s, SIGNAL_LEAVE + 1);
    snprintf(s->signals[i].drain.what, sizeof(s->signals[i].drain.what), "cordoned");
    s->nodes[i].cordoned = drain_closes(&s->signals[i]);
}

static void calm_down(struct cluster_sim *s)
{
    for (int i = 0; i < SIM_NODES; i++) {
        s->nodes[i].ready = s->node_up[i] = true;
        s->nodes[i].cordoned = false;
        s->signals[i].drain.action = SIGNAL_NONE;
    }
    for (int i = 0; i < SIM_PODS; i++)
        if (s->pods[i].foreign)
            s->pods[i].used = false;
    for (int i = 0; i < SIM_JOBS; i++) {
        struct sim_job *j = &s->jobs[i];
        if (j->job.suspend)
            touch(j);
        j->job.suspend = false;
        j->finishing |= (j->job.status.phase == JOB_RUNNING && chance(s, 30)) ||
                        job_phase_finished(j->job.status.phase) ||
                        j->job.status.phase == JOB_COMPLETING;
        memcpy(j->job.template_hash,
               j->job.status.template_hash[0] ? j->job.status.template_hash : j->job.template_hash,
               sizeof(j->job.template_hash));
    }
}

static void foreground(struct cluster_sim *s, struct sim_job *j)
{
    bool any = false;
    for (int i = 0; i < SIM_PODS && j->job.deleting; i++)
        if (s->pods[i].used && strcmp(s->pods[i].owner, j->job.uid) == 0) {
            delete_pod(s, &s->pods[i]);
            any = true;
        }
    if (j->job.deleting && !any)
        j->there = false;
}

void cluster_sim_world_step(struct cluster_sim *s)
{
    if (s->calm)
        calm_down(s);
    else if (chance(s, 60))
        use_job(s);
    else if (chance(s, 60))
        upset_pod(s);
    else if (chance(s, 10))
        upset_node(s);
    else if (chance(s, 30))
        upset_signal(s);
    for (int i = 0; i < SIM_PODS; i++) {
        struct sim_pod *p = &s->pods[i];
        if (!p->used || (!s->calm && chance(s, 400)))
            continue;
        schedule(s, p);
        run_pod(s, p);
        collect(s, p);
    }
    for (int i = 0; i < SIM_JOBS; i++)
        foreground(s, &s->jobs[i]);
    s->now += cluster_sim_random(s, chance(s, 30) ? 400000 : 3000);
}
