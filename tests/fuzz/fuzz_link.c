/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_link: bytes on the socket between hvd-operator and hvd-plane, read by either: by the
 * operator from a plane that somebody has taken over, and by the plane. The mirror's facts and
 * views must stay readable.
 */
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/json/json.h"
#include "operator/link/link.h"
#include "operator/link/plane_message.h"
#include "operator/link/plane_mirror.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct end {
    struct link *link;
    struct plane_mirror *mirror; /* NULL: the plane's end */
};

static void on_listening(void *arg, int port)
{
    (void)arg;
    if (port < 1 || port > 65535)
        abort();
}

static void on_changed(void *arg, const char *uid)
{
    (void)arg;
    if (strcmp(uid, "job") != 0)
        abort();
}

static void on_recovered(void *arg, bool lost, double seconds)
{
    (void)arg, (void)lost;
    if (!(seconds >= 0 && seconds < 1e9))
        abort();
}

static void on_review(void *arg, uint64_t id, const char *token)
{
    (void)arg;
    if (id == 0 || strlen(token) > PLANE_TOKEN_MAX)
        abort();
}

static void on_look(void *arg, const char *uid)
{
    (void)arg, (void)uid;
}

static int read_as_plane(const char *type, json_t *j, struct err *err)
{
    struct plane_start start;
    struct plane_job job;
    struct plane_pod pod;
    struct plane_review review;
    const char *uid;
    uint64_t id;
    if (strcmp(type, "config") == 0)
        return plane_read_config(j, &start, err);
    if (strcmp(type, "renew") == 0)
        return plane_read_renew(j, &uid, &uid, err);
    if (strcmp(type, "job") == 0)
        return plane_read_job(j, &job, err);
    if (strcmp(type, "pod") == 0)
        return plane_read_pod(j, &uid, &pod, err);
    return plane_read_reviewed(j, &id, &review, err);
}

static int on_message(void *arg, const char *type, json_t *message, struct err *err)
{
    struct end *e = arg;
    int rc = e->mirror ? plane_mirror_take(e->mirror, type, message, err)
                       : read_as_plane(type, message, err);
    if (rc < 0 && !err->msg[0])
        abort();
    return rc;
}

static void on_broken(void *arg, const char *why)
{
    struct end *e = arg;
    if (!why[0])
        abort();
    link_close(e->link);
    e->link = NULL;
}

static void feed(struct plane_mirror *mirror, const uint8_t *data, size_t size)
{
    struct loop loop;
    struct end e = {.mirror = mirror};
    int fds[2];
    if (loop_init(&loop) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
        abort();
    const struct link_config config = {
        .loop = &loop, .fd = fds[0], .message = on_message, .broken = on_broken, .arg = &e};
    if (link_open(&e.link, &config, NULL) < 0 || write(fds[1], data, size) != (ssize_t)size)
        abort();
    for (int i = 0; e.link && i < 3; i++)
        loop_once(&loop, 0);
    link_close(e.link);
    close(fds[1]);
    loop_fini(&loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct plane_mirror_config config = {.listening = on_listening,
                                               .changed = on_changed,
                                               .recovered = on_recovered,
                                               .review = on_review,
                                               .look = on_look};
    struct plane_mirror *m;
    struct plane_facts facts;
    struct job_findings findings;
    if (size > LINK_READ)
        return 0;
    if (plane_mirror_create(&m, &config, NULL) < 0 || plane_mirror_job(m, "job") < 0)
        abort();
    plane_mirror_view(m, "job");
    feed(m, data, size);
    if (plane_mirror_facts(m, "job", &facts, &findings))
        job_findings_fini(&findings);
    const struct plane_view *v = plane_mirror_view(m, "job");
    if (v && (v->nworkers > PLANE_WORKERS_MAX || v->nfindings > PLANE_FINDINGS_MAX))
        abort();
    plane_mirror_destroy(m);
    feed(NULL, data, size);
    return 0;
}
