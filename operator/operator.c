/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: see operator.h.
 */
#include "operator/operator.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/include/hvd.h"
#include "operator/api/election.h"
#include "operator/api/health.h"
#include "operator/coordination.h"
#include "operator/driver/driver.h"
#include "operator/driver/leader_label.h"
#include "operator/driver/recorder.h"
#include "operator/link/heap.h"
#include "operator/metrics/metrics.h"
#include "operator/metrics/web.h"
#include "operator/page/page.h"

#define CHECK_MS 1000
#define LABEL_MS 1000 /* limit for removing the leader's label at the end */

struct program {
    const struct settings *settings;
    struct loop loop;
    struct loop_fd signals;
    struct access access;
    struct api *api;
    struct election *election;
    struct driver *driver;
    struct leader_label *label;
    struct recorder *recorder; /* of Events about the operator itself */
    struct web *web;
    struct page *page;
    struct coordination *coordination; /* NULL: pods run without agents */
    char agents_url[320];
    struct health health;
    char lease[200]; /* the lease's name in messages */
    struct loop_timer ending, trimming, checking;
    bool leaving;
    struct err failure; /* why the operator stopped without a signal */
    char identity[256];
};

/* ---- pages ----------------------------------------------------------------------------------- */

static void put_text(struct buf *dst, const char *text)
{
    buf_put(dst, text, strlen(text));
}

static int page_metrics(void *arg, struct buf *dst)
{
    const struct program *o = arg;
    metrics_head(dst, "hvd_build_info", "gauge", "Always 1; the label is the version.");
    metrics_value(dst, "hvd_build_info", "version", HVD_VERSION, 1);
    driver_metrics(o->driver, dst);
    if (o->election) {
        metrics_head(dst, "hvd_lease_late_seconds", "gauge",
                     "Longest delay of a lease renewal by other work of the loop.");
        metrics_value(dst, "hvd_lease_late_seconds", NULL, NULL,
                      (double)election_late(o->election) / (double)CLOCK_S);
    }
    if (o->coordination)
        coordination_metrics(o->coordination, dst);
    return 200;
}

/* There is one thread, so a response proves that it runs. */
static int page_healthz(void *arg, struct buf *dst)
{
    (void)arg;
    put_text(dst, "ok\n");
    return 200;
}

static int sources(const struct program *o, struct health_source *ret)
{
    int n = 0;
    if (o->election) /* also of a replica that waits: it reads the lease */
        ret[n++] = (struct health_source){
            .what = o->lease, .there = true, .problem = election_problem(o->election)};
    return n + driver_sources(o->driver, ret + n, HEALTH_SOURCES - n);
}

static int page_readyz(void *arg, struct buf *dst)
{
    const struct program *o = arg;
    struct health_source all[HEALTH_SOURCES];
    bool ready = health_ready(&o->health, all, sources(o, all), clock_ns(), dst);
    const char *problem = o->coordination ? coordination_problem(o->coordination) : "";
    if (*problem) {
        put_text(dst, problem);
        put_text(dst, "\n");
        ready = false;
    }
    if (ready)
        put_text(dst, "ok\n");
    return ready ? 200 : 503;
}

static const struct web_page pages[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", page_metrics},
    {"/healthz", "text/plain", page_healthz},
    {"/readyz", "text/plain", page_readyz},
};

static struct plane_mirror *plane_of(void *arg)
{
    const struct program *o = arg;
    return o->coordination ? coordination_mirror(o->coordination) : NULL;
}

static void other_page(void *arg, const struct web_request *request, struct web_answer *ret)
{
    const struct program *o = arg;
    page_answer(o->page, request, ret);
}

/* ---- leading --------------------------------------------------------------------------------- */

static bool may_write(void *arg)
{
    const struct program *o = arg;
    return !o->leaving && (!o->election || election_leads(o->election));
}

static void lead(struct program *o, int64_t term)
{
    if (o->coordination)
        coordination_lead(o->coordination, term);
    else
        driver_lead(o->driver);
}

static void stop_leading(struct program *o)
{
    if (o->coordination)
        coordination_stop_leading(o->coordination);
    else
        driver_stop_leading(o->driver);
}

static void on_started(void *arg, int64_t term)
{
    struct program *o = arg;
    log_info("this operator leads, term %" PRId64, term);
    if (o->label)
        leader_label_set(o->label, true);
    lead(o, term);
}

static void on_stopped(void *arg)
{
    struct program *o = arg;
    const char *why = o->election ? election_problem(o->election)->text : "";
    log_info("this operator does not lead any more: it stops writing%s%s", *why ? ": " : "", why);
    stop_leading(o);
    if (o->label)
        leader_label_set(o->label, false);
}

/* The namespace of the lease and of the Secret with the keys. */
static const char *lease_namespace(const struct program *o)
{
    const char *where = o->settings->lease_namespace;
    where = where ? where : o->settings->pod_namespace;
    where = where ? where : o->access.namespace;
    return where && *where ? where : "default";
}

/* An Event about the operator: on its Lease, which outlives its pod. */
static void warn_of(struct program *o, const char *reason, const char *note)
{
    const struct recorder_about lease = {"coordination.k8s.io/v1", "Lease", lease_namespace(o),
                                         o->settings->lease,
                                         o->election ? election_lease_uid(o->election) : ""};
    log_warn("%s", note);
    if (o->election)
        recorder_event(o->recorder, &lease, true, reason, note);
}

static void on_warning(void *arg, const char *reason, const char *note)
{
    warn_of(arg, reason, note);
}

static void on_plane_missing(void *arg, const char *why)
{
    struct program *o = arg;
    char note[640];
    snprintf(
        note, sizeof(note),
        "%.128s: %.200s. This operator releases the lease, so that one whose hvd-plane works can "
        "serve the agents; ranks train on. Look at the log of its container plane",
        o->settings->pod_name ? o->settings->pod_name : o->identity, why);
    warn_of(o, "PlaneMissing", note);
    election_release(o->election);
}

static bool yields(void *arg)
{
    const struct program *o = arg;
    return o->coordination && coordination_misses_plane(o->coordination);
}

/* ---- health ---------------------------------------------------------------------------------- */

static void say(void *arg, const char *line)
{
    (void)arg;
    log_warn("%s", line); /* also the end of a problem, at the level of its beginning */
}

static void on_check(void *arg)
{
    struct program *o = arg;
    struct health_source all[HEALTH_SOURCES];
    health_step(&o->health, all, sources(o, all), clock_ns(), say, NULL);
    loop_timer_start(&o->loop, &o->checking, CHECK_MS, on_check, o);
}

static void start_checks(struct program *o)
{
    snprintf(o->lease, sizeof(o->lease), "lease %.80s/%.80s", lease_namespace(o),
             o->settings->lease);
    o->health.server = o->access.server;
    o->health.unready_after = (uint64_t)o->settings->lease_s * CLOCK_S;
    on_check(o);
}

/* ---- shutdown -------------------------------------------------------------------------------- */

static void on_ending(void *arg)
{
    struct program *o = arg;
    loop_stop(&o->loop);
}

static void on_left(void *arg)
{
    struct program *o = arg;
    bool wait = o->label && !leader_label_settled(o->label);
    loop_timer_start(&o->loop, &o->ending, wait ? LABEL_MS : 0, on_ending, o);
}

static void on_signal(void *arg, uint32_t events)
{
    struct program *o = arg;
    (void)events;
    if (loop_signal_next(&o->signals) == 0)
        return;
    if (o->leaving) { /* the second signal: exit at once */
        loop_stop(&o->loop);
        return;
    }
    o->leaving = true;
    loop_timer_stop(&o->loop, &o->checking);
    if (o->election) {
        election_leave(o->election, on_left);
    } else {
        stop_leading(o);
        on_left(o);
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static void choose_identity(struct program *o)
{
    char host[128] = "hvd-operator";
    const char *name = o->settings->pod_name;
    if (o->settings->identity) {
        snprintf(o->identity, sizeof(o->identity), "%s", o->settings->identity);
        return;
    }
    if (!name && gethostname(host, sizeof(host) - 1) == 0)
        name = host;
    /* Random, so that a restarted container has a new identity. */
    snprintf(o->identity, sizeof(o->identity), "%.100s_%08" PRIx32 "%08" PRIx32, name ? name : host,
             (uint32_t)randombytes_random(), (uint32_t)randombytes_random());
}

static int open_election(struct program *o, struct err *err)
{
    const struct settings *settings = o->settings;
    if (!settings->elect) { /* without a lease the wall clock is the term, which must rise */
        lead(o, (int64_t)(clock_wall_us() / 1000000));
        return 0;
    }
    struct election_config config = {.api = o->api,
                                     .namespace = lease_namespace(o),
                                     .name = settings->lease,
                                     .identity = o->identity,
                                     .duration_ms = 1000 * (uint64_t)settings->lease_s,
                                     .renew_ms = 1000 * (uint64_t)settings->renew_s,
                                     .retry_ms = 1000 * (uint64_t)settings->retry_s,
                                     .started = on_started,
                                     .stopped = on_stopped,
                                     .yields = yields,
                                     .arg = o};
    return election_open(&o->election, &config, err);
}

static int open_web(struct program *o, struct err *err)
{
    struct web_config config = {.loop = &o->loop,
                                .address = o->settings->metrics,
                                .pages = pages,
                                .n = sizeof(pages) / sizeof(pages[0]),
                                .other = other_page,
                                .arg = o};
    const struct page_config page = {
        .driver = o->driver, .plane = plane_of, .arg = o, .access = o->settings->page};
    if (!*o->settings->metrics)
        return 0;
    int rc = page_open(&o->page, &page, err);
    rc = rc < 0 ? rc : web_open(&o->web, &config, err);
    if (rc == 0)
        log_info("/metrics and the web page are served on port %d", web_port(o->web));
    return rc;
}

static void on_coordination_failed(void *arg, const struct err *err)
{
    struct program *o = arg;
    o->failure = *err;
    loop_stop(&o->loop);
}

static int open_coordination(struct program *o, struct err *err)
{
    const struct settings *settings = o->settings;
    const char *namespace = settings->pod_namespace;
    if (!settings->plane_socket)
        return 0;
    if (!settings->agents_url && !namespace)
        return err_set(err, EINVAL,
                       "--plane-socket outside of a pod needs --agents-url: the URL "
                       "at which agents reach hvd-plane");
    if (settings->agents_url)
        snprintf(o->agents_url, sizeof(o->agents_url), "%s", settings->agents_url);
    else
        snprintf(o->agents_url, sizeof(o->agents_url), "https://hvd-operator.%s.svc:%d", namespace,
                 PLANE_PORT);
    struct coordination_config config = {
        .api = o->api,
        .driver = o->driver,
        .namespace = lease_namespace(o),
        .socket = settings->plane_socket,
        .plane_s = settings->plane_s,
        .plane_uid = settings->plane_uid < 0 ? geteuid() : (uid_t)settings->plane_uid,
        .url = o->agents_url,
        .certificate_s = settings->certificate_s,
        .ca_s = settings->ca_s,
        .bundle = settings->bundle,
        .mount = settings->mount,
        .by_key = settings->namespace != NULL,
        .failed = on_coordination_failed,
        .warn = on_warning,
        .missing = settings->elect ? on_plane_missing : NULL,
        .arg = o};
    return coordination_open(&o->coordination, &config, err);
}

static int open_signals(struct program *o, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    int rc = loop_signals_start(&o->loop, &o->signals, &set, on_signal, o);
    return rc < 0 ? err_sys(err, -rc, "signals") : 0;
}

static int open_all(struct program *o, struct err *err)
{
    const struct settings *settings = o->settings;
    int rc = access_load(settings->kubeconfig, settings->context, &o->access, err);
    rc = rc < 0 ? rc : api_open(&o->api, &o->loop, &o->access, err);
    if (rc < 0)
        return rc;
    struct driver_config config = {.api = o->api,
                                   .policy = settings->queue,
                                   .namespace = settings->namespace,
                                   .signals = &settings->signals,
                                   .drain_ms = INT64_C(1000) * settings->drain_s,
                                   .instance = o->identity,
                                   .may_write = may_write,
                                   .arg = o};
    log_info("API server %s, identity %s, jobs of %s%s", o->access.server, o->identity,
             settings->namespace ? "namespace " : "all namespaces",
             settings->namespace ? settings->namespace : "");
    rc = recorder_open(&o->recorder, o->api, NULL, o->identity, err);
    rc = rc < 0 ? rc : driver_open(&o->driver, &config, err);
    rc = rc < 0 ? rc : open_coordination(o, err);
    rc = rc < 0 ? rc : open_web(o, err);
    if (rc == 0 && settings->pod_name && settings->pod_namespace)
        rc = leader_label_open(&o->label, o->api, settings->pod_namespace, settings->pod_name, err);
    rc = rc < 0 ? rc : open_election(o, err);
    if (rc == 0)
        start_checks(o);
    return rc;
}

static void close_all(struct program *o)
{
    loop_timer_stop(&o->loop, &o->ending);
    loop_timer_stop(&o->loop, &o->trimming);
    loop_timer_stop(&o->loop, &o->checking);
    election_close(o->election);
    leader_label_close(o->label);
    web_close(o->web);
    page_close(o->page);
    coordination_close(o->coordination);
    driver_close(o->driver);
    recorder_close(o->recorder);
    api_close(o->api);
    access_fini(&o->access);
    loop_fd_stop(&o->loop, &o->signals);
    loop_fini(&o->loop);
}

int operator_run(const struct settings *settings, struct err *err)
{
    struct program o = {.settings = settings};
    heap_bound();
    int rc = loop_init(&o.loop);
    if (rc < 0)
        return err_sys(err, -rc, "epoll");
    choose_identity(&o);
    rc = open_signals(&o, err);
    rc = rc < 0 ? rc : open_all(&o, err);
    heap_trim(&o.loop, &o.trimming);
    if (rc == 0 && (rc = loop_run(&o.loop)) < 0)
        err_sys(err, -rc, "epoll");
    if (rc == 0 && o.failure.code)
        rc = err_set(err, -o.failure.code, "%s", o.failure.msg);
    close_all(&o);
    return rc;
}
