/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_mirror: see plane_mirror.h. Facts are kept as the text of their message, which is a tenth
 * of struct plane_facts.
 */
#include "operator/link/plane_mirror.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/json/json.h"
#include "operator/link/plane_message.h"

#define LOOK_EVERY  (800 * CLOCK_MS) /* the page asks every second at most */
#define VIEW_FOR    (5 * CLOCK_S)
#define SECONDS_MAX 1e9

struct mirrored_job {
    char *facts; /* NULL: none yet */
    struct list node;
    char uid[PLANE_UID_MAX];
};

struct mirrored_view {
    char uid[PLANE_UID_MAX]; /* "": free */
    uint64_t asked, got;     /* clock_ns(); got 0: not yet */
    struct plane_view view;
};

struct plane_mirror {
    struct plane_mirror_config config;
    struct list jobs;
    struct plane_counts counts;
    struct mirrored_view views[PLANE_VIEWS];
};

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct mirrored_job *find(const struct plane_mirror *m, const char *uid)
{
    list_for_each(pos, tmp, &m->jobs)
    {
        struct mirrored_job *job = list_entry(pos, struct mirrored_job, node);
        if (strcmp(job->uid, uid) == 0)
            return job;
    }
    return NULL;
}

int plane_mirror_job(struct plane_mirror *m, const char *uid)
{
    if (find(m, uid))
        return 0;
    struct mirrored_job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    if (plane_copy_text("job", uid, job->uid, sizeof(job->uid), NULL) < 0) {
        free(job);
        return -EINVAL;
    }
    list_append(&m->jobs, &job->node);
    return 0;
}

static void drop(struct mirrored_job *job)
{
    list_remove(&job->node);
    free(job->facts);
    free(job);
}

void plane_mirror_forget(struct plane_mirror *m, const char *uid)
{
    struct mirrored_job *job = find(m, uid);
    if (job)
        drop(job);
}

bool plane_mirror_knows(const struct plane_mirror *m, const char *uid)
{
    return find(m, uid) != NULL;
}

bool plane_mirror_facts(const struct plane_mirror *m, const char *uid, struct plane_facts *ret,
                        struct job_findings *ret_findings)
{
    const struct mirrored_job *job = find(m, uid);
    auto_json json_t *j = NULL;
    struct plane_facts facts;
    return job && job->facts && json_read(job->facts, strlen(job->facts), "facts", &j, NULL) == 0 &&
           plane_read_facts(j, &facts, NULL, NULL) == 0 && facts.there &&
           plane_read_facts(j, ret, ret_findings, NULL) == 0;
}

static int take_facts(struct plane_mirror *m, json_t *message, struct err *err)
{
    struct plane_facts facts;
    struct job_findings findings = {0};
    int rc = plane_read_facts(message, &facts, &findings, err);
    job_findings_fini(&findings);
    if (rc < 0)
        return rc;
    struct mirrored_job *job = find(m, json_string_value(json_object_get(message, "job")));
    char *text = job ? json_write(message) : NULL;
    if (!text || (job->facts && strcmp(job->facts, text) == 0)) {
        free(text);
        return 0;
    }
    free(job->facts);
    job->facts = text;
    m->config.changed(m->config.arg, job->uid);
    return 0;
}

/* ---- views ----------------------------------------------------------------------------------- */

static struct mirrored_view *find_view(struct plane_mirror *m, const char *uid)
{
    for (int i = 0; i < PLANE_VIEWS; i++)
        if (m->views[i].uid[0] && strcmp(m->views[i].uid, uid) == 0)
            return &m->views[i];
    return NULL;
}

static struct mirrored_view *oldest_view(struct plane_mirror *m)
{
    struct mirrored_view *oldest = &m->views[0];
    for (int i = 1; i < PLANE_VIEWS; i++)
        oldest = m->views[i].asked < oldest->asked ? &m->views[i] : oldest;
    return oldest;
}

static void free_view(struct mirrored_view *v)
{
    plane_view_fini(&v->view);
    *v = (struct mirrored_view){0};
}

const struct plane_view *plane_mirror_view(struct plane_mirror *m, const char *uid)
{
    uint64_t now = clock_ns();
    for (int i = 0; i < PLANE_VIEWS; i++)
        if (m->views[i].uid[0] && now - m->views[i].asked > VIEW_FOR)
            free_view(&m->views[i]);
    if (!find(m, uid))
        return NULL;
    struct mirrored_view *v = find_view(m, uid);
    if (!v) {
        v = oldest_view(m);
        free_view(v);
        memcpy(v->uid, uid, strlen(uid) + 1); /* it fits: the job was announced */
    }
    if (now - v->asked >= LOOK_EVERY) {
        v->asked = now;
        m->config.look(m->config.arg, uid);
    }
    return v->got && now - v->got < VIEW_FOR ? &v->view : NULL;
}

static int take_view(struct plane_mirror *m, json_t *message, struct err *err)
{
    struct plane_view view;
    int rc = plane_read_view(message, &view, err);
    if (rc < 0)
        return rc;
    struct mirrored_view *v = find_view(m, view.uid);
    if (!v) { /* nobody has asked for it, or long ago */
        plane_view_fini(&view);
        return 0;
    }
    plane_view_fini(&v->view);
    v->view = view;
    v->got = clock_ns();
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int take_listening(struct plane_mirror *m, json_t *message, struct err *err)
{
    const char *type;
    int port = 0;
    int rc = json_expect(message, "listening", err, "{s:s, s:i !}", "type", &type, "port", &port);
    if (rc == 0 && (port < 1 || port > 65535))
        rc = err_set(err, EINVAL, "listening: port %d", port);
    if (rc == 0)
        m->config.listening(m->config.arg, port);
    return rc;
}

static int take_recovered(struct plane_mirror *m, json_t *message, struct err *err)
{
    const char *type;
    int lost = 0;
    double seconds = 0;
    int rc = json_expect(message, "recovered", err, "{s:s, s:b, s:F !}", "type", &type, "lost",
                         &lost, "seconds", &seconds);
    if (rc == 0 && !(seconds >= 0 && seconds < SECONDS_MAX))
        rc = err_set(err, EINVAL, "recovered: %g seconds", seconds);
    if (rc == 0)
        m->config.recovered(m->config.arg, lost, seconds);
    return rc;
}

static int take_review(struct plane_mirror *m, json_t *message, struct err *err)
{
    const char *type, *token;
    json_int_t id = 0;
    int rc = json_expect(message, "review", err, "{s:s, s:I, s:s !}", "type", &type, "id", &id,
                         "token", &token);
    if (rc == 0 && (id < 1 || strlen(token) > PLANE_TOKEN_MAX))
        rc = err_set(err, EINVAL, "review: its id is not positive, or its token is too long");
    if (rc == 0)
        m->config.review(m->config.arg, (uint64_t)id, token);
    return rc;
}

static int take_counts(struct plane_mirror *m, json_t *message, struct err *err)
{
    return plane_read_counts(message, &m->counts, err);
}

int plane_mirror_take(struct plane_mirror *m, const char *type, json_t *message, struct err *err)
{
    static const struct {
        const char *type;
        int (*take)(struct plane_mirror *m, json_t *message, struct err *err);
    } kinds[] = {{"facts", take_facts},   {"view", take_view},     {"recovered", take_recovered},
                 {"review", take_review}, {"counts", take_counts}, {"listening", take_listening}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].take(m, message, err);
    return err_set(err, EPROTO, "a message of the unknown type \"%.40s\"", type);
}

const struct plane_counts *plane_mirror_counts(const struct plane_mirror *m)
{
    return &m->counts;
}

/* ---- life ------------------------------------------------------------------------------------ */

int plane_mirror_create(struct plane_mirror **ret, const struct plane_mirror_config *config,
                        struct err *err)
{
    struct plane_mirror *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ENOMEM, "no memory for what the plane reports");
    m->config = *config;
    list_init(&m->jobs);
    *ret = m;
    return 0;
}

void plane_mirror_destroy(struct plane_mirror *m)
{
    if (!m)
        return;
    list_for_each(pos, tmp, &m->jobs)
    {
        drop(list_entry(pos, struct mirrored_job, node));
    }
    for (int i = 0; i < PLANE_VIEWS; i++)
        free_view(&m->views[i]);
    free(m);
}
