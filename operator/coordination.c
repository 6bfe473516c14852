/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination: see coordination.h.
 */
#include "operator/coordination.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/member/authority.h"
#include "operator/coordination_private.h"
#include "operator/link/plane_message.h"

#define AGING_MAX 3600000 /* ms between two looks at the age of certificates */
#define DAY_S     (24 * 3600)
#define READY_MS  200 /* between two checks whether the driver's caches have synced */

#define PATIENCE_MAX 120000 /* ms */

/* Planes of one leader that have terms of their own: their epochs are higher than those of the
 * planes before. A plane that takes over after more restarts relies on the agents' reports alone.
 */
#define PLANES_MAX 16

/* ---- messages of the plane ------------------------------------------------------------------- */

static void on_ready(void *arg)
{
    struct coordination *c = arg;
    if (driver_ready(c->config.driver))
        link_send(c->link, json_pack("{s:s}", "type", "synced"));
    else
        loop_timer_start(c->loop, &c->ready, READY_MS, on_ready, c);
}

static void set_injection(struct coordination *c)
{
    char *before = c->roots;
    c->roots = keys_roots(keystore_keys(c->keystore));
    const struct injection injection = {.url = c->config.url,
                                        .ca = c->roots ? c->roots : "",
                                        .audience = PLANE_AUDIENCE,
                                        .bundle = c->config.bundle,
                                        .mount = c->config.mount};
    driver_set_injection(c->config.driver, &injection);
    free(before);
}

static void begin_driver(struct coordination *c)
{
    const struct driver_handlers handlers = coordination_handlers(c);
    set_injection(c);
    driver_set_handlers(c->config.driver, &handlers);
    if (!c->begun)
        driver_lead(c->config.driver);
    c->begun = true;
}

static void on_listening(void *arg, int port)
{
    struct coordination *c = arg;
    if (c->listens)
        return;
    c->listens = true;
    c->gave_up = c->mute = false;
    c->patience_ms = 1000 * (uint64_t)c->config.plane_s;
    loop_timer_stop(c->loop, &c->missing);
    log_info("hvd-plane listens for agents on port %d; they dial %s", port, c->config.url);
    begin_driver(c);
    on_ready(c);
}

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

static void on_reviewed(void *arg, uint64_t id, const struct plane_review *review)
{
    struct coordination *c = arg;
    link_send(c->link, plane_write_reviewed(id, review));
}

static void on_review(void *arg, uint64_t id, const char *token)
{
    struct coordination *c = arg;
    if (!c->config.by_key)
        reviewer_ask(c->reviewer, id, token);
}

static void on_look(void *arg, const char *job_uid)
{
    struct coordination *c = arg;
    link_send(c->link, json_pack("{s:s, s:s}", "type", "look", "job", job_uid));
}

/* ---- the connection to the plane ------------------------------------------------------------- */

static int on_message(void *arg, const char *type, json_t *message, struct err *err)
{
    struct coordination *c = arg;
    if (!c->mirror)
        return err_set(err, EPROTO, "a message before it was told to serve");
    return plane_mirror_take(c->mirror, type, message, err);
}

static void drop_plane(struct coordination *c)
{
    loop_timer_stop(c->loop, &c->ready);
    loop_timer_stop(c->loop, &c->aging);
    /* Before the link, to which the reviewer of tokens sends its results. */
    reviewer_close(c->reviewer);
    link_close(c->link);
    plane_mirror_destroy(c->mirror);
    if (c->link)
        c->away_since = clock_ns();
    c->reviewer = NULL;
    c->link = NULL;
    c->mirror = NULL;
    c->listens = false;
}

static void on_missing(void *arg);

/* Gives the plane time to listen. A time that has begun goes on, however often the plane connects.
 */
static void wait_for_plane(struct coordination *c)
{
    if (c->leads && !c->listens && !c->missing.on && c->config.missing)
        loop_timer_start(c->loop, &c->missing, c->patience_ms, on_missing, c);
}

static void on_missing(void *arg)
{
    struct coordination *c = arg;
    if (!keystore_keys(c->keystore)) { /* the plane cannot listen without, nor can another one */
        wait_for_plane(c);
        return;
    }
    c->gave_up = true;
    c->mute = c->link != NULL;
    c->patience_ms = 2 * c->patience_ms < PATIENCE_MAX ? 2 * c->patience_ms : PATIENCE_MAX;
    c->config.missing(c->config.arg, coordination_problem(c));
}

bool coordination_misses_plane(const struct coordination *c)
{
    if (c->link) /* one that has been started after the last was missed may serve */
        return c->mute;
    return c->gave_up || clock_ns() - c->away_since >= (uint64_t)c->config.plane_s * CLOCK_S;
}

static void on_broken(void *arg, const char *why)
{
    struct coordination *c = arg;
    log_warn("hvd-plane is disconnected: %s. Agents are served again once it has come back", why);
    drop_plane(c);
    c->mute = false;
    wait_for_plane(c);
}

static int64_t wall_s(void)
{
    return (int64_t)(clock_wall_us() / 1000000);
}

static int issue(struct coordination *c, struct authority *ret, struct err *err)
{
    int64_t made;
    int rc = keys_issue(keystore_keys(c->keystore), c->host, c->config.certificate_s, ret, err);
    rc = rc < 0 ? rc : authority_span(ret->cert_pem, &made, &c->until, err);
    c->issued = wall_s();
    return rc;
}

static int send_config(struct coordination *c, struct err *err)
{
    struct authority a = {0};
    int rc = issue(c, &a, err);
    if (rc < 0)
        return rc;
    const struct plane_start start = {.cert_pem = a.cert_pem,
                                      .key_pem = a.key_pem,
                                      .reviews = !c->config.by_key,
                                      .term = c->term * PLANES_MAX + c->planes++ % PLANES_MAX};
    link_send(c->link, plane_write_config(&start));
    authority_fini(&a);
    return 0;
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void renew(struct coordination *c)
{
    struct authority a = {0};
    struct err err = {0};
    int rc = issue(c, &a, &err);
    snprintf(c->renewal, sizeof(c->renewal), "%s", rc < 0 ? err_text(&err) : "");
    if (rc < 0) {
        log_error("the plane keeps its certificate: %s", c->renewal);
        return;
    }
    link_send(c->link, plane_write_renew(a.cert_pem, a.key_pem));
    authority_fini(&a);
}

/* A pod trusts the CA with which it was created, so the oldest pod decides which predecessors are
 * needed. Pods that are being created, and clocks that differ, are given a day. */
static int64_t needed_s(const struct coordination *c)
{
    int64_t oldest = driver_oldest_pod(c->config.driver) / 1000, now = wall_s();
    int grace = c->config.ca_s < DAY_S ? c->config.ca_s : DAY_S;
    return (oldest < now ? oldest : now) - grace;
}

static void warn_of_certificates(struct coordination *c, const struct certificates *life)
{
    char note[1024];
    enum certificates_state state = certificates_judge(life, wall_s(), note, sizeof(note));
    if (state != c->certificates && state != CERTIFICATES_FINE)
        c->config.warn(c->config.arg, certificates_reason(state), note);
    c->certificates = state;
}

static void look_at_certificates(struct coordination *c)
{
    const struct keys *keys = keystore_keys(c->keystore);
    struct certificates life = {.issued = c->issued,
                                .until = c->until,
                                .ca_s = c->config.ca_s,
                                .problem = c->renewal,
                                .ca_problem = keystore_rotation_problem(c->keystore)};
    if (!c->listens || !keys ||
        authority_span(keys->ca_pem, &life.ca_issued, &life.ca_until, NULL) < 0)
        return;
    warn_of_certificates(c, &life);
    if (certificates_due(&life, wall_s()))
        renew(c);
    /* Without all pods it is not known which predecessors are needed. */
    if (certificates_ca_due(&life, wall_s()) && driver_ready(c->config.driver))
        keystore_rotate(c->keystore, needed_s(c));
}

/* Looks at the clock now and then instead of waiting for a time, because the clock may be set. */
static void on_aging(void *arg)
{
    struct coordination *c = arg;
    look_at_certificates(c);
    int s = c->config.certificate_s < c->config.ca_s ? c->config.certificate_s : c->config.ca_s;
    uint64_t ms = 1000 * (uint64_t)s / 10;
    loop_timer_start(c->loop, &c->aging, ms < AGING_MAX ? ms : AGING_MAX, on_aging, c);
}

/* Tells the plane to serve once this operator leads, has its keys, and is connected. */
static void begin(struct coordination *c)
{
    const struct plane_mirror_config mirror = {.listening = on_listening,
                                               .changed = on_changed,
                                               .recovered = on_recovered,
                                               .review = on_review,
                                               .look = on_look,
                                               .arg = c};
    struct err err = {0};
    if (!c->leads || !c->link || c->mirror || !keystore_keys(c->keystore))
        return;
    int rc = reviewer_open(&c->reviewer, c->config.api, on_reviewed, c, &err);
    rc = rc < 0 ? rc : plane_mirror_create(&c->mirror, &mirror, &err);
    rc = rc < 0 ? rc : send_config(c, &err);
    if (rc < 0)
        c->config.failed(c->config.arg, &err);
    else
        on_aging(c);
}

static void on_connected(void *arg, int fd)
{
    struct coordination *c = arg;
    const struct link_config config = {
        .loop = c->loop, .fd = fd, .message = on_message, .broken = on_broken, .arg = c};
    struct err err = {0};
    if (c->link) {
        log_warn("refused a second hvd-plane on %s", c->config.socket);
        close(fd);
        return;
    }
    if (link_open(&c->link, &config, &err) < 0) {
        log_warn("%s", err_text(&err));
        return;
    }
    log_info("hvd-plane is connected");
    begin(c);
}

/* ---- leading --------------------------------------------------------------------------------- */

static void on_keys(void *arg, const struct keys *keys)
{
    struct coordination *c = arg;
    (void)keys;
    if (c->begun) /* new pods trust the new CA, and the new certificate is good for all pods */
        set_injection(c);
    if (c->listens)
        renew(c);
    else
        begin(c);
    if (c->leads && c->gave_up && !c->begun) {
        if (coordination_misses_plane(c))
            log_warn("no other operator leads: this one reconciles jobs, although hvd-plane serves "
                     "no agents");
        begin_driver(c);
    }
}

void coordination_lead(struct coordination *c, int64_t term)
{
    c->leads = true;
    c->term = term;
    c->planes = 0;
    if (!c->link)
        log_info("waits for hvd-plane on %s", c->config.socket);
    wait_for_plane(c);
    keystore_reload(c->keystore); /* another leader may have replaced the CA */
}

void coordination_stop_leading(struct coordination *c)
{
    c->leads = false;
    c->begun = false;
    loop_timer_stop(c->loop, &c->missing);
    driver_stop_leading(c->config.driver);
    driver_set_handlers(c->config.driver, NULL);
    if (c->mirror) /* the plane closes its port when the connection ends, and connects again */
        drop_plane(c);
}

const char *coordination_problem(struct coordination *c)
{
    const char *problem = keystore_problem(c->keystore);
    c->problem[0] = '\0';
    if (!*problem && !c->link)
        snprintf(c->problem, sizeof(c->problem), "hvd-plane has not connected to %.100s yet",
                 c->config.socket);
    else if (!*problem && c->mirror && !c->listens)
        snprintf(c->problem, sizeof(c->problem), "hvd-plane does not listen for agents yet");
    return *problem ? problem : c->problem;
}

struct plane_mirror *coordination_mirror(const struct coordination *c)
{
    return c->mirror;
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

int coordination_open(struct coordination **ret, const struct coordination_config *config,
                      struct err *err)
{
    struct coordination *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory for the coordinator");
    c->config = *config;
    c->loop = api_loop(config->api);
    c->away_since = clock_ns();
    c->patience_ms = 1000 * (uint64_t)config->plane_s;
    const struct plane_socket_config socket = {.loop = c->loop,
                                               .path = config->socket,
                                               .uid = config->plane_uid,
                                               .connected = on_connected,
                                               .arg = c};
    int rc = read_url(c, err);
    rc = rc < 0 ? rc : plane_socket_open(&c->socket, &socket, err);
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
    drop_plane(c);
    plane_socket_close(c->socket);
    keystore_close(c->keystore);
    free(c->roots);
    free(c);
}
