/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination: see coordination.h.
 */
#include "operator/coordination.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/keystore.h"
#include "operator/metrics/metrics.h"
#include "operator/coordinator/review.h"
#include "operator/objects/moment.h"

#define READY_MS 200 /* between two checks whether the driver's caches have synced */
#define TURN_MS  200 /* longest time between two turns: token reviews set no timer */

struct coordination {
    struct coordination_config config;
    struct loop *loop;
    struct keystore *keystore;
    struct reviewer *reviewer;
    struct plane *plane; /* NULL while not leading */
    bool leads;
    char key[KEYS_JOB_MAX]; /* returned by the last on_key() */
    int64_t term;
    char host[256];   /* host name in config.url */
    char address[64]; /* "": all addresses */
    int port;
    struct loop_fd lfd;
    struct loop_timer timer, ready;
    struct histogram recovery[2]; /* [0]: planned changes, [1]: losses */
};

/* ---- turns ----------------------------------------------------------------------------------- */

static void set_timer(struct coordination *c);

static void turn(struct coordination *c)
{
    if (c->plane)
        plane_turn(c->plane);
    set_timer(c);
}

static void on_readable(void *arg, uint32_t events)
{
    (void)events;
    turn(arg);
}

static void on_timer(void *arg)
{
    turn(arg);
}

/* Call it after anything that may have changed the plane's time-out. */
static void set_timer(struct coordination *c)
{
    int ms = c->plane ? plane_timeout_ms(c->plane) : -1;
    if (!c->plane)
        return;
    loop_timer_start(c->loop, &c->timer, ms < 0 || ms > TURN_MS ? TURN_MS : (uint64_t)ms, on_timer,
                     c);
}

/* ---- event handlers of the driver ------------------------------------------------------------ */

/* Describes the job to the plane. A spec that has become invalid changes nothing in a job that the
 * plane knows. A new leader takes such a job as it is, so that its ranks train on and their agents
 * come back. */
static void on_job(void *arg, const struct hvdjob *job)
{
    struct coordination *c = arg;
    struct err err = {0};
    const struct plane_job update = {.uid = job->uid,
                                     .namespace_ = job->namespace_,
                                     .name = job->name,
                                     .workers = job->workers,
                                     .min = job->elastic ? job->min : job->workers,
                                     .max = job->elastic ? job->max : job->workers,
                                     .slots = job->slots,
                                     .elastic = job->elastic,
                                     .began = job->status.epoch > 0 ||
                                              job->status.admitted != MOMENT_NONE};
    if (!c->plane)
        return;
    if (job_phase_finished(job->status.phase))
        plane_forget(c->plane, job->uid);
    else if (!(job->refused && plane_knows(c->plane, job->uid)) &&
             plane_job(c->plane, &update, &err) < 0)
        log_warn("job %s/%s: %s", job->namespace_, job->name, err_text(&err));
    set_timer(c);
}

static void on_job_gone(void *arg, const char *uid)
{
    struct coordination *c = arg;
    if (c->plane)
        plane_forget(c->plane, uid);
    set_timer(c);
}

static void on_pod(void *arg, const struct pod *pod, bool gone)
{
    struct coordination *c = arg;
    const struct plane_pod update = {.uid = pod->uid,
                                     .name = pod->name,
                                     .worker = pod->worker,
                                     .attempt = pod->attempt,
                                     .bound = pod->node != NULL,
                                     .deleting = pod->deleting,
                                     .finished = pod_finished(pod)};
    if (!c->plane)
        return;
    if (gone)
        plane_pod_gone(c->plane, pod->owner, pod->uid);
    else
        plane_pod(c->plane, pod->owner, &update, NULL); /* fails for a finished job */
    set_timer(c);
}

static void add_finding(void *arg, const char *pod, const struct finding *f)
{
    struct job_findings *all = arg;
    struct job_finding one = {.failure = f->status == FINDING_FAIL};
    snprintf(one.id, sizeof(one.id), "%s", f->id);
    snprintf(one.code, sizeof(one.code), "%s", f->code);
    snprintf(one.source, sizeof(one.source), "%s", f->source);
    snprintf(one.summary, sizeof(one.summary), "%.319s", f->summary);
    snprintf(one.fix, sizeof(one.fix), "%.319s", f->fix);
    snprintf(one.pods[0], sizeof(one.pods[0]), "%.63s", pod);
    if (job_findings_add(all, &one) < 0)
        log_debug("no memory for finding %s of %s", f->id, pod);
}

static void on_facts(void *arg, const char *uid, struct job_facts *ret)
{
    const struct coordination *c = arg;
    struct plane_facts facts;
    *ret = (struct job_facts){0};
    if (!c->plane || plane_facts(c->plane, uid, &facts) < 0 || !facts.there)
        return;
    ret->known = !facts.rebuilding;
    ret->epoch = (int)facts.epoch;
    snprintf(ret->waiting_for, sizeof(ret->waiting_for), "%s", facts.waiting_for);
    ret->first.known = facts.first_failure.known;
    ret->first.rank = facts.first_failure.rank;
    ret->first.worker = facts.first_failure.worker;
    snprintf(ret->first.text, sizeof(ret->first.text), "%.319s", facts.first_failure.text);
    plane_findings(c->plane, uid, add_finding, &ret->findings);
    job_findings_keep_worst(&ret->findings);
}

static const char *on_key(void *arg, const char *uid)
{
    struct coordination *c = arg;
    keys_job(keystore_keys(c->keystore), uid, c->key);
    return c->key;
}

/* ---- callbacks of the plane ------------------------------------------------------------------ */

static void on_changed(void *arg, const char *job_uid)
{
    struct coordination *c = arg;
    driver_changed(c->config.driver, job_uid);
}

static void on_recovered(void *arg, bool lost, double seconds)
{
    struct coordination *c = arg;
    histogram_add(&c->recovery[lost], seconds);
}

/* plane_config has one arg for all callbacks, so this one cannot be reviewer_ask() itself. */
static void on_review(void *arg, uint64_t id, const char *token)
{
    struct coordination *c = arg;
    reviewer_ask(c->reviewer, id, token);
}

/* ---- leading --------------------------------------------------------------------------------- */

static void on_ready(void *arg)
{
    struct coordination *c = arg;
    if (!driver_ready(c->config.driver, NULL)) {
        loop_timer_start(c->loop, &c->ready, READY_MS, on_ready, c);
        return;
    }
    plane_synced(c->plane);
    turn(c);
}

static int listen_for_agents(struct coordination *c, struct err *err)
{
    const char *names[] = {c->host};
    struct plane_config config = {.address = c->address[0] ? c->address : NULL,
                                  .port = c->port,
                                  .keys = keystore_keys(c->keystore),
                                  .names = names,
                                  .nnames = 1,
                                  .term = c->term,
                                  .changed = on_changed,
                                  .review = c->config.by_key ? NULL : on_review,
                                  .recovered = on_recovered,
                                  .arg = c};
    int rc = reviewer_open(&c->reviewer, c->config.api, err);
    rc = rc < 0 ? rc : plane_create(&c->plane, &config, err);
    if (rc < 0)
        return rc;
    reviewer_serve(c->reviewer, c->plane);
    rc = loop_fd_start(c->loop, &c->lfd, plane_fd(c->plane), EPOLLIN, on_readable, c);
    return rc < 0 ? err_sys(err, -rc, "the coordinator's descriptor") : 0;
}

static void begin(struct coordination *c)
{
    const struct driver_handlers handlers = {.job = on_job,
                                             .job_gone = on_job_gone,
                                             .pod = on_pod,
                                             .facts = on_facts,
                                             .key = c->config.by_key ? on_key : NULL,
                                             .arg = c};
    const struct injection injection = {.url = c->config.url,
                                        .ca = keystore_keys(c->keystore)->ca_pem,
                                        .audience = KEYS_AUDIENCE,
                                        .bundle = c->config.bundle,
                                        .mount = c->config.mount};
    struct err err = {0};
    if (listen_for_agents(c, &err) < 0) {
        c->config.failed(c->config.arg, &err);
        return;
    }
    log_info("listens for agents on port %d; they dial %s", plane_port(c->plane), c->config.url);
    driver_set_injection(c->config.driver, &injection);
    driver_set_handlers(c->config.driver, &handlers);
    driver_lead(c->config.driver);
    on_ready(c);
}

static void on_keys(void *arg, const struct keys *keys)
{
    struct coordination *c = arg;
    (void)keys;
    if (c->leads)
        begin(c);
}

void coordination_lead(struct coordination *c, int64_t term)
{
    c->leads = true;
    c->term = term;
    if (keystore_keys(c->keystore))
        begin(c);
}

void coordination_stop_leading(struct coordination *c)
{
    c->leads = false;
    driver_stop_leading(c->config.driver);
    driver_set_handlers(c->config.driver, NULL);
    loop_fd_stop(c->loop, &c->lfd);
    loop_timer_stop(c->loop, &c->timer);
    loop_timer_stop(c->loop, &c->ready);
    /* The reviewer is closed before the plane, because reviews in flight call the plane. */
    reviewer_close(c->reviewer);
    c->reviewer = NULL;
    plane_destroy(c->plane);
    c->plane = NULL;
}

const char *coordination_problem(const struct coordination *c)
{
    return keystore_problem(c->keystore);
}

const struct plane *coordination_plane(const struct coordination *c)
{
    return c->plane;
}

static void put(struct buf *dst, const char *name, const char *kind, const char *help,
                double number)
{
    metrics_head(dst, name, kind, help);
    metrics_value(dst, name, NULL, NULL, number);
}

void coordination_metrics(const struct coordination *c, struct buf *dst)
{
    static const char *const causes[] = {"planned", "lost"};
    struct plane_counts n = {0};
    if (c->plane)
        plane_counts(c->plane, &n);
    put(dst, "hvd_agents", "gauge", "Agents that are connected now.", n.agents);
    put(dst, "hvd_agent_joins_total", "counter", "Agents that joined.", (double)n.joins);
    put(dst, "hvd_agent_rejoins_total", "counter",
        "Agents that joined again after a restart of the operator or a lost connection.",
        (double)n.rejoins);
    put(dst, "hvd_agent_losses_total", "counter", "Agents that were declared lost.",
        (double)n.losses);
    put(dst, "hvd_token_reviews_total", "counter",
        "Token reviews that were sent to the API server.", (double)n.reviews);
    metrics_head(dst, "hvd_agents_refused_total", "counter",
                 "Requests of agents that were refused, by cause.");
    metrics_value(dst, "hvd_agents_refused_total", "cause", "token", (double)n.refused_token);
    metrics_value(dst, "hvd_agents_refused_total", "cause", "pod", (double)n.refused_pod);
    metrics_value(dst, "hvd_agents_refused_total", "cause", "body", (double)n.refused_body);
    metrics_head(dst, "hvd_epochs_total", "counter",
                 "New epochs that followed another one, by cause.");
    metrics_value(dst, "hvd_epochs_total", "cause", "planned", (double)n.epochs_planned);
    metrics_value(dst, "hvd_epochs_total", "cause", "lost", (double)n.epochs_lost);
    metrics_histograms(dst, "hvd_recovery_seconds",
                       "How long training stood still at a new epoch, by cause.", "cause", causes,
                       c->recovery, 2);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Takes the name from "https://name:port" or "https://[::1]:port". */
static int read_url(struct coordination *c, struct err *err)
{
    const char *url = c->config.url, *begin = url + strlen("https://");
    const char *colon = strrchr(url, ':');
    if (strncmp(url, "https://", strlen("https://")) != 0 || !colon || colon <= begin ||
        strchr(begin, '/'))
        return err_set(err, EINVAL, "%.100s: want https://NAME:PORT", url);
    bool brackets = *begin == '[' && colon[-1] == ']';
    snprintf(c->host, sizeof(c->host), "%.*s", (int)(colon - begin - 2 * brackets),
             begin + brackets);
    return 0;
}

/* Parses ":7443", "10.0.0.1:7443" or "[::1]:7443". plane_create() checks the address itself. */
static int read_address(struct coordination *c, struct err *err)
{
    const char *text = c->config.address, *colon = strrchr(text, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || colon[1] < '0' || colon[1] > '9' || *end || port > 65535 ||
        n >= sizeof(c->address))
        return err_set(err, EINVAL, "%.100s: want ADDRESS:PORT", text);
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(c->address, sizeof(c->address), "%.*s", (int)(n - 2 * brackets), text + brackets);
    c->port = (int)port;
    return 0;
}

int coordination_open(struct coordination **ret, const struct coordination_config *config,
                      struct err *err)
{
    struct coordination *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for the coordinator");
    c->config = *config;
    c->loop = api_loop(config->api);
    int rc = read_url(c, err);
    rc = rc < 0 ? rc : read_address(c, err);
    rc = rc < 0 ? rc : keystore_open(&c->keystore, config->api, config->namespace, on_keys, c, err);
    if (rc < 0) {
        coordination_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void coordination_close(struct coordination *c)
{
    if (!c)
        return;
    coordination_stop_leading(c);
    keystore_close(c->keystore);
    free(c);
}
