/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator: see job_coordinator.h.
 *
 * An agent is lost when
 *   its pod finished or was deleted                                at once
 *   its connection is closed, and other ranks have seen a loss     after CLOSED_MS
 *   it is silent, and other ranks have seen a loss                 after SUSPECT_MS
 *   its connection is closed, and no connection stands in a queue  after ABSENT_S
 *   it is silent                                                   after SILENT_S
 * An agent that did not come back while the roster was rebuilt is silent from then on.
 */
#include "operator/coordinator/job_coordinator.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

#define START_TIMEOUT_S 60
#define CLOSED_MS       20 /* a live agent opens a new connection sooner */
#define ABSENT_S        20 /* after two late responses a live agent pauses for up to 10 s (client.c) */
#define SILENT_S        60 /* no request for so long: the agent or its network has failed */
#define FAREWELL_S      10 /* time to tell agents that the job has finished */
#define END_GRACE_MS    2000

/* ---- the roster ----------------------------------------------------------------------------- */

static struct roster_elastic limits(const struct job_coordinator *c)
{
    return (struct roster_elastic){.min = c->min * c->slots,
                                   .max = c->max * c->slots,
                                   .keep_places = c->keep_places,
                                   .start_limit = (uint64_t)c->start_timeout * CLOCK_S};
}

/* Replaces the roster by an empty one, or (resume) by one that is rebuilt from what agents report.
 * On failure the old one stays. */
static int make_roster(struct job_coordinator *c, bool resume, struct err *err)
{
    uint8_t key[MEMBER_KEY_SIZE];
    char name[MEMBER_NAME_MAX];
    struct roster r = {0};
    struct roster_elastic elastic = limits(c);
    struct roster_saved saved = {
        .term = (uint32_t)(c->term % (ROSTER_TERM_MAX + 1)),
        .target = c->workers * c->slots,
        .target_only = true,
    };
    memcpy(name, c->roster.job, sizeof(name));
    randombytes_buf(key, sizeof(key));
    int rc = resume
                 ? roster_begin_rebuild(&r, name, key, NULL, 0, &elastic, &saved, UINT64_MAX, err)
                 : roster_init_hosted(&r, name, key, saved.target, err);
    sodium_memzero(key, sizeof(key));
    if (rc == 0 && !resume)
        rc = roster_make_elastic(&r, &elastic, err);
    if (rc < 0) {
        roster_fini(&r);
        return rc;
    }
    r.term = saved.term;
    roster_fini(&c->roster);
    c->roster = r;
    c->seen_notes = 0;
    c->seen_world = 0;
    c->gathering = resume;
    c->gather_begun = clock_ns();
    c->gather_waits = 0;
    for (int i = 0; i < c->npods; i++)
        c->pods[i]->agent = -1;
    return 0;
}

static bool is_live(const struct job_coordinator *c, int agent)
{
    return agent >= 0 && c->roster.agents.list[agent].joined && !c->roster.agents.list[agent].lost;
}

static bool is_away(const struct job_coordinator *c, int agent)
{
    return agent >= 0 && c->roster.agents.list[agent].away && !c->roster.agents.list[agent].lost;
}

int job_coordinator_count_agents(const struct job_coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->roster.agents.n; i++)
        n += is_live(c, i);
    return n;
}

/* Sets the number of ranks whose agents are expected. While the roster is rebuilt, pods that are
 * being deleted count, too: their ranks may be training. */
static void count_arriving(struct job_coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->npods; i++) {
        const struct job_coordinator_pod *p = c->pods[i];
        bool wanted = p->bound && !p->finished && (!p->deleting || c->roster.rebuilding);
        n += wanted && p->agent < 0 ? c->slots : 0;
    }
    c->roster.arriving = n;
}

void job_coordinator_lose(struct job_coordinator *c, int agent, const char *text, uint64_t now)
{
    if (!is_live(c, agent) && !is_away(c, agent))
        return;
    for (int i = 0; i < c->roster.members.n; i++) {
        const struct roster_member *m = &c->roster.members.list[i];
        if (m->agent != agent || rank_has_ended(m->state))
            continue;
        c->losses++;
        break;
    }
    roster_agent_lost(&c->roster, agent, text, now);
}

/* ---- joins ---------------------------------------------------------------------------------- */

struct job_coordinator_pod *job_coordinator_pod_of(const struct job_coordinator *c,
                                                   const char *agent)
{
    char uid[PLANE_UID_MAX];
    size_t n = strcspn(agent, ".");
    if (n >= sizeof(uid))
        return NULL;
    memcpy(uid, agent, n);
    uid[n] = '\0';
    return job_coordinator_find_pod(c, uid);
}

/* Returns whether the roster has decided nothing yet that a rejoining agent could contradict. */
static bool is_blank(const struct roster *r)
{
    return r->epoch == 0 && r->members.n == 0;
}

/* Returns whether the roster's ranks have finished or failed and no live agent remains. Then a join
 * starts a new roster. */
static bool is_used_up(const struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    bool over = r->stopping || r->closing || roster_culprit(r) >= 0 || r->ends.finished > 0;
    return over && r->agents.n > 0 && job_coordinator_count_agents(c) == 0;
}

/* Returns whether the agent has a newer roster than this one, which has made no epoch of its own
 * yet: the previous operator was lost while it made an epoch known. */
static bool knows_more(const struct roster *r, const struct rejoin *told)
{
    return told->world.epoch > r->epoch && r->epoch >> ROSTER_TERM_SHIFT != r->term;
}

/* Makes the roster ready for an agent that comes back after it was rebuilt, or refuses the agent.
 */
static int prepare_late(struct job_coordinator *c, const struct job_coordinator_pod *pod,
                        const struct join_body *body, struct err *err)
{
    if (is_blank(&c->roster) || knows_more(&c->roster, body->rejoin))
        return make_roster(c, true, err); /* agents that have joined join again */
    int known = roster_find(&c->roster, body->agent);
    if (known >= 0)
        return 0; /* roster_join() decides */
    int rc = is_live(c, pod->agent) ? err_set(err, EEXIST, "its pod has another agent")
                                    : roster_check_late(&c->roster, body->rejoin, err);
    if (rc < 0)
        err_prefix(err, "job %s goes on without agent \"%.100s\"", c->roster.job, body->agent);
    return rc;
}

static int prepare(struct job_coordinator *c, const struct job_coordinator_pod *pod,
                   const struct join_body *body, struct err *err)
{
    if (body->rejoin && !c->roster.rebuilding)
        return prepare_late(c, pod, body, err);
    return is_used_up(c) ? make_roster(c, false, err) : 0;
}

static int on_arrive(void *arg, const struct join_body *body, struct err *err)
{
    struct job_coordinator *c = arg;
    struct job_coordinator_pod *pod = job_coordinator_pod_of(c, body->agent);
    if (!pod)
        return err_set(err, ENOENT, "no pod of agent \"%.100s\" in job %s", body->agent,
                       c->roster.job);
    if (c->ended || pod->finished)
        return err_set(err, EEXIST, "pod %s has ended", pod->name);
    job_coordinator_end_gathering(c, clock_ns());
    int known = roster_find(&c->roster, body->agent);
    if (is_live(c, known))
        return 0;
    int rc = prepare(c, pod, body, err);
    if (rc < 0)
        return rc;
    c->urgent = true;
    if (body->rejoin)
        job_coordinator_came_back(c, clock_ns());
    known = roster_find(&c->roster, body->agent);
    if (known >= 0) {
        c->rejoins += is_away(c, known);
        return 0;
    }
    job_coordinator_lose(c, pod->agent, "its pod has another agent", clock_ns());
    struct roster_host host = {body->agent, pod->name, 0, c->slots};
    rc = roster_add_host(&c->roster, &host, err);
    if (rc < 0)
        return rc;
    pod->agent = c->roster.agents.n - 1;
    c->roster.agents.list[pod->agent].order = pod->worker;
    count_arriving(c);
    c->joins += !body->rejoin;
    c->rejoins += body->rejoin != NULL;
    return 0;
}

static void on_changed(void *arg)
{
    struct job_coordinator *c = arg;
    job_coordinator_count_epochs(c); /* before the next request can begin another epoch */
    c->changed(c->arg, c);
}

/* To be called when an agent or pod has appeared or vanished. */
static void urgent(struct job_coordinator *c)
{
    c->urgent = true;
    c->changed(c->arg, c);
}

/* ---- jobs and pods -------------------------------------------------------------------------- */

static int check_job(const struct plane_job *job, struct err *err)
{
    long most = (long)job->max * job->slots;
    if (!job->uid[0] || strlen(job->uid) >= PLANE_UID_MAX || strchr(job->uid, '/'))
        return err_set(err, EINVAL,
                       "the job's uid \"%.80s\" is empty, too long or contains a slash", job->uid);
    if (job->slots < 1 || job->min < 1 || job->min > job->workers || job->max < job->workers ||
        most > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL,
                       "job %s: %d to %d workers, %d wanted, of %d slots, are inconsistent or too "
                       "many ranks",
                       job->name, job->min, job->max, job->workers, job->slots);
    return 0;
}

static void take_job(struct job_coordinator *c, const struct plane_job *job)
{
    memcpy(c->key_hash, job->key_hash, sizeof(c->key_hash));
    c->workers = job->workers;
    c->min = job->min;
    c->max = job->max;
    c->slots = job->slots;
    c->keep_places = job->keep_places; /* cannot change: a roster has what the job began with */
    c->start_timeout = job->start_timeout ? job->start_timeout : START_TIMEOUT_S;
}

int job_coordinator_create(struct job_coordinator **ret, const struct plane_job *job, int64_t term,
                           struct gather *gather,
                           void (*changed)(void *arg, struct job_coordinator *job), void *arg,
                           struct err *err)
{
    int rc = check_job(job, err);
    struct job_coordinator *c = rc == 0 ? calloc(1, sizeof(*c)) : NULL;
    if (!c)
        return rc < 0 ? rc : err_set(err, ENOMEM, "no memory for job %s", job->name);
    snprintf(c->uid, sizeof(c->uid), "%s", job->uid);
    snprintf(c->roster.job, sizeof(c->roster.job), "%s/%s", job->namespace_, job->name);
    c->term = term;
    c->gather = gather;
    c->changed = changed;
    c->arg = arg;
    c->service = (struct service){
        .roster = &c->roster, .changed = on_changed, .arrive = on_arrive, .arg = c};
    take_job(c, job);
    rc = make_roster(c, job->began, err);
    if (rc < 0) {
        job_coordinator_destroy(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void job_coordinator_destroy(struct job_coordinator *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->npods; i++)
        free(c->pods[i]);
    free(c->pods);
    roster_fini(&c->roster);
    epoch_history_fini(&c->history);
    free(c);
}

int job_coordinator_update(struct job_coordinator *c, const struct plane_job *job, struct err *err)
{
    int workers = c->workers, min = c->min, max = c->max, slots = c->slots;
    int rc = check_job(job, err);
    if (rc < 0)
        return rc;
    take_job(c, job);
    if (c->workers == workers && c->min == min && c->max == max && c->slots == slots)
        return 0;
    if (c->slots != slots && is_blank(&c->roster))
        return make_roster(c, false, err);
    c->slots = slots; /* cannot change while there are workers */
    struct roster_elastic e = limits(c);
    rc = roster_resize(&c->roster, e.min, e.max, c->workers * c->slots, clock_ns(), err);
    urgent(c);
    return rc;
}

struct job_coordinator_pod *job_coordinator_find_pod(const struct job_coordinator *c,
                                                     const char *uid)
{
    for (int i = 0; i < c->npods; i++)
        if (strcmp(c->pods[i]->uid, uid) == 0)
            return c->pods[i];
    return NULL;
}

static struct job_coordinator_pod *add_pod(struct job_coordinator *c, const struct plane_pod *pod)
{
    if (c->npods == c->pods_cap) {
        int cap = c->pods_cap ? 2 * c->pods_cap : 8;
        struct job_coordinator_pod **grown =
            realloc(c->pods, (size_t)cap * sizeof(struct job_coordinator_pod *));
        if (!grown)
            return NULL;
        c->pods = grown;
        c->pods_cap = cap;
    }
    struct job_coordinator_pod *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->agent = -1;
    snprintf(p->uid, sizeof(p->uid), "%s", pod->uid);
    snprintf(p->name, sizeof(p->name), "%s", pod->name);
    c->pods[c->npods++] = p;
    return p;
}

int job_coordinator_pod(struct job_coordinator *c, const struct plane_pod *pod, struct err *err)
{
    if (!pod->uid[0] || strlen(pod->uid) >= PLANE_UID_MAX || strpbrk(pod->uid, "./") ||
        strlen(pod->name) >= PLANE_UID_MAX)
        return err_set(err, EINVAL, "the uid \"%.80s\" or the name of a pod is invalid or too long",
                       pod->uid);
    struct job_coordinator_pod *p = job_coordinator_find_pod(c, pod->uid);
    if (!p)
        p = add_pod(c, pod);
    if (!p)
        return err_set(err, ENOMEM, "no memory for pod %s", pod->name);
    p->worker = pod->worker;
    p->attempt = pod->attempt;
    p->bound = pod->bound;
    /* For good: the operator tells of pods that it deletes together before it deletes them, and an
     * older state of such a pod may arrive after that. */
    p->deleting |= pod->deleting;
    p->finished = pod->finished;
    urgent(c);
    return 0;
}

void job_coordinator_pod_gone(struct job_coordinator *c, const char *uid)
{
    for (int i = 0; i < c->npods; i++) {
        struct job_coordinator_pod *p = c->pods[i];
        if (strcmp(p->uid, uid) != 0)
            continue;
        job_coordinator_lose(c, p->agent, "its pod was deleted", clock_ns());
        c->pods[i] = c->pods[--c->npods];
        free(p);
        urgent(c);
        return;
    }
}

/* ---- losses --------------------------------------------------------------------------------- */

void job_coordinator_heard(struct job_coordinator_pod *pod)
{
    pod->closed_at = 0;
}

void job_coordinator_closed(struct job_coordinator *c, const char *agent, uint64_t now)
{
    struct job_coordinator_pod *pod = job_coordinator_pod_of(c, agent);
    if (!pod || pod->agent < 0 || strcmp(c->roster.agents.list[pod->agent].uid, agent) != 0)
        return;
    if (!pod->closed_at)
        pod->closed_at = now;
    urgent(c);
}

/* Returns whether a rank that was in an epoch is ready for the next one. Such a rank has seen a
 * loss, or is at a boundary that the others reach within milliseconds. */
static bool has_seen_loss(const struct roster *r)
{
    if (r->rebuilding)
        return roster_gathers_waiting(r);
    for (int i = 0; i < r->members.n; i++)
        if (r->members.list[i].state == RANK_READY && r->members.list[i].was_in)
            return true;
    return false;
}

/* Declares the agent lost if a limit has passed. True: check it again within 10 ms. */
static bool watch_agent(struct job_coordinator *c, struct job_coordinator_pod *pod, bool seen_loss,
                        bool forgive, uint64_t now)
{
    struct gaps *gaps = &c->roster.agents.list[pod->agent].gaps;
    if (forgive)
        gaps_forgive(gaps, now);
    uint64_t silent = now - gaps->heard;
    if (pod->finished)
        job_coordinator_lose(c, pod->agent, "its pod has ended", now);
    else if (is_away(c, pod->agent) &&
             silent >= (seen_loss ? SUSPECT_MS * CLOCK_MS : SILENT_S * CLOCK_S))
        job_coordinator_lose(c, pod->agent, "its agent has not come back to this operator", now);
    else if (seen_loss && pod->closed_at && now - pod->closed_at >= CLOSED_MS * CLOCK_MS)
        job_coordinator_lose(c, pod->agent, "its agent has closed the connection", now);
    else if (seen_loss && silent >= SUSPECT_MS * CLOCK_MS)
        job_coordinator_lose(c, pod->agent, "its agent is silent", now);
    else if (pod->closed_at && now - pod->closed_at >= ABSENT_S * CLOCK_S && !c->gather->behind)
        job_coordinator_lose(c, pod->agent, "its agent has not reconnected within 20 s", now);
    else if (silent >= SILENT_S * CLOCK_S)
        job_coordinator_lose(c, pod->agent, "its agent was silent for 60 s", now);
    else if (pod->deleting)
        roster_leave(&c->roster, pod->agent, "its pod is being deleted", now);
    return seen_loss && pod->closed_at != 0;
}

static void note_failures(struct job_coordinator *c)
{
    const struct roster *r = &c->roster;
    for (int i = 0; i < r->members.n && !c->first_known; i++) {
        const struct roster_member *m = &r->members.list[i];
        bool failed = m->reaped && (m->state == RANK_FAILED) && !m->leaving && m->code != 0;
        if (!failed || r->stopping)
            continue;
        c->first_known = true;
        c->first_rank = m->was_rank;
        c->first_worker = r->agents.list[m->agent].order;
        c->first_code = m->code;
        roster_describe_end(r, i, c->first_text, sizeof(c->first_text));
    }
}

bool job_coordinator_tick(struct job_coordinator *c, bool forgive, uint64_t now)
{
    struct roster *r = &c->roster;
    bool soon = false, seen_loss = has_seen_loss(r);
    for (int i = 0; i < c->npods; i++)
        if (is_live(c, c->pods[i]->agent) || is_away(c, c->pods[i]->agent))
            soon |= watch_agent(c, c->pods[i], seen_loss, forgive, now);
    count_arriving(c);
    if (r->rebuilding)
        r->rebuild_by = job_coordinator_gather_until(c, seen_loss, now);
    roster_tick(r, now);
    job_coordinator_end_gathering(c, now);
    if (roster_done(r) && r->members.n > 0 && !r->stopping)
        roster_stop(r, "all ranks have ended", 0);
    note_failures(c);
    job_coordinator_count_epochs(c);
    return soon;
}

bool job_coordinator_end(struct job_coordinator *c, uint64_t now)
{
    if (!c->ended) {
        c->ended = true;
        c->ended_at = now;
        if (!c->roster.stopping)
            roster_stop(&c->roster, "the job has ended", END_GRACE_MS);
        urgent(c);
    }
    return job_coordinator_count_agents(c) == 0 || now - c->ended_at >= FAREWELL_S * CLOCK_S;
}
