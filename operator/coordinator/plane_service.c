/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_service: see plane_service.h. plane_report.c sends what the operator gets to know.
 */
#include "operator/coordinator/plane_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/json/json.h"
#include "operator/coordinator/plane_service_private.h"
#include "operator/link/plane_message.h"

#define AGAIN_MS  100  /* between two attempts to connect, at first */
#define AGAIN_MAX 2000 /* and after some failures */
#define LISTEN_MS 1000 /* between two attempts to listen for agents */
#define TURN_MS   200  /* longest time between two turns: token reviews set no timer */
#define COUNTS_MS 200

/* ---- turns ----------------------------------------------------------------------------------- */

/* Call it after anything that may have changed the plane's time-out. */
static void set_timer(struct plane_service *s);

static void turn(struct plane_service *s)
{
    if (s->plane)
        plane_turn(s->plane);
    set_timer(s);
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

static void set_timer(struct plane_service *s)
{
    int ms = s->plane ? plane_timeout_ms(s->plane) : -1;
    if (s->plane)
        loop_timer_start(s->config.loop, &s->timer, ms < 0 || ms > TURN_MS ? TURN_MS : (uint64_t)ms,
                         on_timer, s);
}

static void on_counting(void *arg)
{
    struct plane_service *s = arg;
    plane_report_counts(s);
    loop_timer_start(s->config.loop, &s->counting, COUNTS_MS, on_counting, s);
}

/* ---- serving --------------------------------------------------------------------------------- */

static void stop(struct plane_service *s)
{
    loop_fd_stop(s->config.loop, &s->lfd);
    loop_timer_stop(s->config.loop, &s->timer);
    loop_timer_stop(s->config.loop, &s->counting);
    loop_timer_stop(s->config.loop, &s->listening);
    plane_destroy(s->plane);
    s->plane = NULL;
    json_decref(s->start);
    s->start = NULL;
    s->counts = (struct plane_counts){0};
}

static int start(struct plane_service *s, struct err *err)
{
    struct plane_start c;
    int rc = plane_read_config(s->start, &c, err);
    if (rc < 0)
        return rc;
    struct plane_config config = {.address = s->address[0] ? s->address : NULL,
                                  .port = s->port,
                                  .cert_pem = c.cert_pem,
                                  .key_pem = c.key_pem,
                                  .term = c.term,
                                  .gather_ms = c.gather_ms,
                                  .changed = plane_report_changed,
                                  .recovered = plane_report_recovered,
                                  .review = c.reviews ? plane_report_review : NULL,
                                  .arg = s};
    rc = plane_create(&s->plane, &config, err);
    if (rc < 0)
        return rc;
    rc = loop_fd_start(s->config.loop, &s->lfd, plane_fd(s->plane), EPOLLIN, on_readable, s);
    return rc < 0 ? err_sys(err, -rc, "the plane's descriptor") : 0;
}

/* Another process may have the port for a moment: the plane of an operator that led before. */
static void on_listening(void *arg)
{
    struct plane_service *s = arg;
    struct err err = {0};
    if (start(s, &err) < 0) {
        log_warn("agents cannot be served: %s; tries again every second", err_text(&err));
        plane_destroy(s->plane);
        s->plane = NULL;
        loop_timer_start(s->config.loop, &s->listening, LISTEN_MS, on_listening, s);
        return;
    }
    log_info("listens for agents on port %d", plane_port(s->plane));
    link_send(s->link, json_pack("{s:s, s:i}", "type", "listening", "port", plane_port(s->plane)));
    on_counting(s);
    set_timer(s);
}

/* ---- messages of the operator ---------------------------------------------------------------- */

static int take_config(struct plane_service *s, json_t *message, struct err *err)
{
    struct plane_start c;
    int rc = plane_read_config(message, &c, err);
    if (rc < 0)
        return rc;
    if (s->start)
        return err_set(err, EPROTO, "a second config");
    s->start = json_incref(message);
    on_listening(s);
    return 0;
}

static int take_renew(struct plane_service *s, json_t *message, struct err *err)
{
    const char *cert, *key;
    int rc = plane_read_renew(message, &cert, &key, err);
    rc = rc < 0 ? rc : plane_use_certificate(s->plane, cert, key, err);
    if (rc == 0)
        log_debug("has a new certificate");
    return rc;
}

static int take_job(struct plane_service *s, json_t *message, struct err *err)
{
    struct plane_job job;
    struct err why = {0};
    int rc = plane_read_job(message, &job, err);
    if (rc == 0 && plane_job(s->plane, &job, &why) < 0)
        log_warn("job %s/%s: %s", job.namespace_, job.name, err_text(&why));
    return rc;
}

static int take_pod(struct plane_service *s, json_t *message, struct err *err)
{
    struct plane_pod pod;
    const char *job;
    int rc = plane_read_pod(message, &job, &pod, err);
    if (rc == 0)
        plane_pod(s->plane, job, &pod, NULL); /* fails for a job that could not be added */
    return rc;
}

static int take_pod_gone(struct plane_service *s, json_t *message, struct err *err)
{
    const char *type, *job, *pod;
    int rc = json_expect(message, "podGone", err, "{s:s, s:s, s:s !}", "type", &type, "job", &job,
                         "pod", &pod);
    if (rc == 0)
        plane_pod_gone(s->plane, job, pod);
    return rc;
}

static int take_forget(struct plane_service *s, json_t *message, struct err *err)
{
    const char *type, *job;
    int rc = json_expect(message, "forget", err, "{s:s, s:s !}", "type", &type, "job", &job);
    if (rc == 0)
        plane_forget(s->plane, job);
    return rc;
}

static int take_synced(struct plane_service *s, json_t *message, struct err *err)
{
    (void)message, (void)err;
    plane_synced(s->plane);
    return 0;
}

static int take_reviewed(struct plane_service *s, json_t *message, struct err *err)
{
    struct plane_review review;
    uint64_t id;
    int rc = plane_read_reviewed(message, &id, &review, err);
    if (rc == 0)
        plane_reviewed(s->plane, id, &review);
    return rc;
}

static int take_look(struct plane_service *s, json_t *message, struct err *err)
{
    const char *type, *job;
    int rc = json_expect(message, "look", err, "{s:s, s:s !}", "type", &type, "job", &job);
    if (rc == 0)
        plane_report_view(s, job);
    return rc;
}

static int on_message(void *arg, const char *type, json_t *message, struct err *err)
{
    static const struct {
        const char *type;
        int (*take)(struct plane_service *s, json_t *message, struct err *err);
    } kinds[] = {{"job", take_job},       {"pod", take_pod},       {"podGone", take_pod_gone},
                 {"forget", take_forget}, {"synced", take_synced}, {"reviewed", take_reviewed},
                 {"look", take_look},     {"renew", take_renew}};
    struct plane_service *s = arg;
    if (strcmp(type, "config") == 0)
        return take_config(s, message, err);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(type, kinds[i].type) != 0)
            continue;
        if (!s->plane)
            return err_set(err, EPROTO, "%s before this plane listens", type);
        int rc = kinds[i].take(s, message, err);
        set_timer(s);
        return rc;
    }
    return err_set(err, EPROTO, "a message of the unknown type \"%.40s\"", type);
}

/* ---- the connection -------------------------------------------------------------------------- */

static void connect_soon(struct plane_service *s);

static void on_broken(void *arg, const char *why)
{
    struct plane_service *s = arg;
    log_info("%s: %s",
             s->start ? "stops serving agents: the connection to hvd-operator has ended"
                      : "the connection to hvd-operator has ended",
             why);
    stop(s);
    link_close(s->link);
    s->link = NULL;
    connect_soon(s);
}

/* Returns a connected socket, or a negative errno. */
static int dial(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(un.sun_path))
        return -ENAMETOOLONG;
    memcpy(un.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -errno : 0;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
        rc = -errno;
        close(fd);
    }
    return rc < 0 ? rc : fd;
}

static void on_again(void *arg)
{
    struct plane_service *s = arg;
    struct err err = {0};
    int fd = dial(s->config.socket);
    if (fd < 0 && fd != s->said) {
        log_info("waits for hvd-operator on %s: %s", s->config.socket, strerror(-fd));
        s->said = fd;
    }
    if (fd >= 0) {
        const struct link_config config = {
            .loop = s->config.loop, .fd = fd, .message = on_message, .broken = on_broken, .arg = s};
        fd = link_open(&s->link, &config, &err);
    }
    if (fd < 0) {
        connect_soon(s);
        return;
    }
    s->failures = 0;
    s->said = 0;
    log_info("connected to hvd-operator; serves agents while it leads");
}

static void connect_soon(struct plane_service *s)
{
    uint64_t ms = AGAIN_MS << (s->failures < 5 ? s->failures : 5);
    s->failures++;
    loop_timer_start(s->config.loop, &s->again, ms < AGAIN_MAX ? ms : AGAIN_MAX, on_again, s);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Parses ":7443", "10.0.0.1:7443" or "[::1]:7443". plane_create() checks the address itself. */
static int read_address(struct plane_service *s, struct err *err)
{
    const char *text = s->config.address, *colon = strrchr(text, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || colon[1] < '0' || colon[1] > '9' || *end || port > 65535 ||
        n >= sizeof(s->address))
        return err_set(err, EINVAL, "%.100s: want ADDRESS:PORT", text);
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(s->address, sizeof(s->address), "%.*s", (int)(n - 2 * brackets), text + brackets);
    s->port = (int)port;
    return 0;
}

int plane_service_open(struct plane_service **ret, const struct plane_service_config *config,
                       struct err *err)
{
    struct plane_service *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for the plane");
    s->config = *config;
    int rc = read_address(s, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *ret = s;
    on_again(s);
    return 0;
}

void plane_service_close(struct plane_service *s)
{
    if (!s)
        return;
    stop(s);
    loop_timer_stop(s->config.loop, &s->again);
    link_close(s->link);
    free(s);
}
