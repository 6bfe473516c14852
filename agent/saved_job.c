/* SPDX-License-Identifier: Apache-2.0
 *
 * saved_job: see saved_job.h.
 */
#include "agent/saved_job.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/jobs.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/json/json.h"

#define WHAT "the job's state"

enum { TEXT_NAME, TEXT_SCRIPT, TEXT_CWD, TEXT_OUTPUT, TEXT_METRICS, TEXT_IDENTITY, TEXTS };

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *job_pack(const struct job *job)
{
    char *texts[TEXTS + 1] = {job->name,       job->discovery_script, job->cwd,
                              job->output_dir, job->metrics,          job->ssh_identity};
    for (int i = 0; i < TEXTS; i++)
        texts[i] = texts[i] ? texts[i] : "";
    json_t *j = json_pack(
        "{s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:b, s:b, "
        "s:b, s:i, s:i}",
        "texts", strings_pack(texts), "argv", strings_pack(job->argv), "env",
        strings_pack(job->env), "np", job->np, "min_np", job->min_np, "max_np", job->max_np,
        "keep_places", job->keep_places, "elastic_timeout", job->elastic_timeout, "reset_limit",
        job->reset_limit, "cooldown_min", job->cooldown_min, "cooldown_max", job->cooldown_max,
        "slots_per_host", job->slots_per_host, "start_timeout", job->start_timeout, "bind_to",
        bind_to_name(job->bind_to), "doctor", doctor_policy_name(job->doctor), "report_bindings",
        job->report_bindings, "no_prefix", job->no_prefix, "stamps", job->stamps, "verbose",
        job->verbose, "ssh_port", job->ssh_port);
    json_t *hosts = json_array();
    for (int i = 0; i < job->hosts.n; i++) {
        const struct host *h = &job->hosts.list[i];
        json_append(&hosts,
                    json_pack("{s:o, s:i, s:i, s:b}", "name", json_bytes(h->name, strlen(h->name)),
                              "slots", h->slots, "ranks", h->nranks, "local", h->local));
    }
    json_put(&j, "hosts", hosts);
    return j;
}

static json_t *agents_pack(const struct saved_job *k)
{
    json_t *list = json_array();
    for (int i = 0; i < k->nagents; i++) {
        const struct saved_job_agent *a = &k->agents[i];
        json_append(&list, json_pack("{s:s, s:i, s:i, s:b, s:b}", "uid", a->uid, "slots", a->slots,
                                     "room", a->room, "gone", a->gone, "draining", a->draining));
    }
    return list;
}

static json_t *servers_pack(const struct saved_job *k)
{
    json_t *list = json_array();
    for (int i = 0; i < k->nservers; i++) {
        const struct saved_job_server *s = &k->servers[i];
        json_append(&list, json_pack("{s:s, s:i, s:s, s:s, s:s}", "address", s->address, "port",
                                     s->port, "ca", s->authority.ca_pem, "cert",
                                     s->authority.cert_pem, "key", s->authority.key_pem));
    }
    return list;
}

char *saved_job_write(const struct saved_job *k)
{
    json_t *leaving = json_array();
    for (int i = 0; i < k->nleaving; i++)
        json_append(&leaving, json_integer(k->leaving[i]));
    auto_json json_t *j = json_pack(
        "{s:i, s:I, s:I, s:i, s:i, s:i, s:i, s:o, s:o, s:s, s:o}", "version", SAVED_JOB_VERSION,
        "term", (json_int_t)k->term, "change", (json_int_t)k->change, "target", k->target,
        "members", k->nmembers, "restarts", k->restarts, "first_hosts", k->first_hosts, "leaving",
        leaving, "host", json_bytes(k->host, strlen(k->host)), "home", k->home, "environment",
        strings_pack(k->environment));
    json_put(&j, "job", job_pack(&k->job));
    json_put(&j, "agents", agents_pack(k));
    json_put(&j, "servers", servers_pack(k));
    return json_write(j);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The size of an array, which must be at most max. */
static int list_size(const json_t *list, const char *field, size_t max, struct err *err)
{
    if (!json_is_array(list) || json_array_size(list) > max)
        return err_set(err, EINVAL, WHAT ": %s: want a list of at most %zu", field, max);
    return (int)json_array_size(list);
}

static int hosts_unpack(json_t *list, struct hosts *ret, struct err *err)
{
    int n = list_size(list, "hosts", MEMBER_RANKS_MAX, err), rc = 0;
    if (n < 0)
        return n;
    ret->list = calloc((size_t)n + 1, sizeof(*ret->list));
    if (!ret->list)
        return err_set(err, ENOMEM, "no memory for %d hosts", n);
    for (; ret->n < n && rc == 0; ret->n++) {
        struct host *h = &ret->list[ret->n];
        const char *name = "";
        int local = 0;
        size_t len = 0;
        rc = json_expect(json_array_get(list, (size_t)ret->n), WHAT ": host", err,
                         "{s:s, s:i, s:i, s:b}", "name", &name, "slots", &h->slots, "ranks",
                         &h->nranks, "local", &local);
        if (rc == 0)
            rc = json_bytes_read(name, "host", h->name, sizeof(h->name) - 1, &len, err);
        if (rc == 0 && (h->slots < 0 || h->slots > MEMBER_RANKS_MAX || h->nranks < 0 ||
                        h->nranks > MEMBER_RANKS_MAX))
            rc = err_set(err, EINVAL, WHAT ": host: %d slots, %d ranks", h->slots, h->nranks);
        h->local = local;
    }
    return rc;
}

static int texts_unpack(json_t *list, struct job *job, struct err *err)
{
    char **texts = NULL;
    char **fields[TEXTS] = {&job->name,       &job->discovery_script, &job->cwd,
                            &job->output_dir, &job->metrics,          &job->ssh_identity};
    int rc = strings_unpack(list, "texts", &texts, err);
    if (rc < 0)
        return rc;
    if (strings_count(texts) != TEXTS || !*texts[TEXT_NAME] || !*texts[TEXT_CWD])
        rc = err_set(err, EINVAL, WHAT ": texts");
    for (int i = 0; i < TEXTS && rc == 0; i++) {
        if (*texts[i])
            *fields[i] = TAKE(texts[i]);
        else
            free(texts[i]);
    }
    if (rc < 0)
        strings_free(texts);
    else
        free(texts);
    return rc;
}

static int job_check(const struct job *job, struct err *err)
{
    if (job->min_np < 1 || job->max_np < job->min_np || job->max_np > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, WHAT ": %d to %d ranks", job->min_np, job->max_np);
    if (job->start_timeout < 1 || job->elastic_timeout < 0 || job->reset_limit < 0 ||
        job->cooldown_min < 0 || job->cooldown_max < job->cooldown_min || !job->argv[0])
        return err_set(err, EINVAL, WHAT ": times, limit or command");
    return 0;
}

static int job_unpack(json_t *j, struct job *job, struct err *err)
{
    json_t *texts = NULL, *argv = NULL, *env = NULL, *hosts = NULL;
    const char *bind = "", *doctor = "";
    int report = 0, no_prefix = 0, stamps = 0, places = 0; /* stamps: missing in 0.1.0's files */
    job->elastic = true;
    int rc = json_expect(
        j, WHAT ": job", err,
        "{s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:b, "
        "s:b, s?b, s:i, s:i}",
        "texts", &texts, "argv", &argv, "env", &env, "hosts", &hosts, "np", &job->np, "min_np",
        &job->min_np, "max_np", &job->max_np, "keep_places", &places, "elastic_timeout",
        &job->elastic_timeout, "reset_limit", &job->reset_limit, "cooldown_min", &job->cooldown_min,
        "cooldown_max", &job->cooldown_max, "slots_per_host", &job->slots_per_host, "start_timeout",
        &job->start_timeout, "bind_to", &bind, "doctor", &doctor, "report_bindings", &report,
        "no_prefix", &no_prefix, "stamps", &stamps, "verbose", &job->verbose, "ssh_port",
        &job->ssh_port);
    if (rc == 0 &&
        (bind_to_parse(bind, &job->bind_to) < 0 || doctor_policy_parse(doctor, &job->doctor) < 0))
        rc = err_set(err, EINVAL, WHAT ": bind_to or doctor");
    if (rc == 0)
        rc = texts_unpack(texts, job, err);
    if (rc == 0)
        rc = strings_unpack(argv, "argv", &job->argv, err);
    if (rc == 0)
        rc = strings_unpack(env, "env", &job->env, err);
    if (rc == 0)
        rc = hosts_unpack(hosts, &job->hosts, err);
    job->keep_places = places;
    job->report_bindings = report;
    job->no_prefix = no_prefix;
    job->stamps = stamps;
    return rc < 0 ? rc : job_check(job, err);
}

static int agents_unpack(json_t *list, struct saved_job *k, struct err *err)
{
    int n = list_size(list, "agents", MEMBER_RANKS_MAX, err), rc = 0;
    if (n < 0)
        return n;
    if (n != k->job.hosts.n)
        return err_set(err, EINVAL, WHAT ": %d agents on %d hosts", n, k->job.hosts.n);
    k->agents = calloc((size_t)n + 1, sizeof(*k->agents));
    if (!k->agents)
        return err_set(err, ENOMEM, "no memory for %d agents", n);
    for (; k->nagents < n && rc == 0; k->nagents++) {
        struct saved_job_agent *a = &k->agents[k->nagents];
        const char *uid = "";
        int gone = 0, draining = 0;
        rc = json_expect(json_array_get(list, (size_t)k->nagents), WHAT ": agent", err,
                         "{s:s, s:i, s:i, s:b, s:b}", "uid", &uid, "slots", &a->slots, "room",
                         &a->room, "gone", &gone, "draining", &draining);
        if (rc == 0)
            rc = member_copy_text(a->uid, sizeof(a->uid), uid, "uid", err);
        if (rc == 0 && (a->slots < 0 || a->room < a->slots || a->room > MEMBER_RANKS_MAX))
            rc = err_set(err, EINVAL,
                         WHAT ": agent \"%.64s\": slots is %d, room is %d: want 0 <= slots <= "
                              "room <= %d",
                         uid, a->slots, a->room, MEMBER_RANKS_MAX);
        a->gone = gone;
        a->draining = draining;
    }
    return rc;
}

static int servers_unpack(json_t *list, struct saved_job *k, struct err *err)
{
    int n = list_size(list, "servers", SAVED_JOB_SERVERS, err), rc = 0;
    if (n < 0)
        return n;
    for (; k->nservers < n && rc == 0; k->nservers++) {
        struct saved_job_server *s = &k->servers[k->nservers];
        const char *address = "", *ca = "", *cert = "", *key = "";
        rc = json_expect(json_array_get(list, (size_t)k->nservers), WHAT ": server", err,
                         "{s:s, s:i, s:s, s:s, s:s}", "address", &address, "port", &s->port, "ca",
                         &ca, "cert", &cert, "key", &key);
        if (rc == 0 && (s->port < 1 || s->port > 65535))
            rc = err_set(err, EINVAL, WHAT ": server: port %d", s->port);
        if (rc == 0)
            rc = member_copy_text(s->address, sizeof(s->address), address, "address", err);
        const struct authority lent = {(char *)ca, (char *)cert, (char *)key};
        if (rc == 0 && authority_copy(&s->authority, &lent) < 0)
            rc = err_set(err, ENOMEM, "no memory for a certificate");
    }
    return rc;
}

static int leaving_unpack(json_t *list, struct saved_job *k, struct err *err)
{
    int n = list_size(list, "leaving", MEMBER_RANKS_MAX, err);
    if (n < 0)
        return n;
    k->leaving = calloc((size_t)n + 1, sizeof(*k->leaving));
    if (!k->leaving)
        return err_set(err, ENOMEM, "no memory for %d members", n);
    for (; k->nleaving < n; k->nleaving++)
        k->leaving[k->nleaving] =
            (int)json_integer_value(json_array_get(list, (size_t)k->nleaving));
    return 0;
}

static int home_unpack(const char *host, const char *home, json_t *environment, struct saved_job *k,
                       struct err *err)
{
    size_t len = 0;
    int rc = json_bytes_read(host, "host", k->host, sizeof(k->host) - 1, &len, err);
    if (rc == 0)
        rc = member_copy_text(k->home, sizeof(k->home), home, "home", err);
    return rc < 0 ? rc : strings_unpack(environment, "environment", &k->environment, err);
}

static int numbers_check(const struct saved_job *k, json_int_t term, json_int_t change,
                         struct err *err)
{
    if (term < 0 || term > UINT32_MAX || change < 0 || change > UINT32_MAX)
        return err_set(err, EINVAL, WHAT ": term or change is out of range");
    if (k->target < 1 || k->target > MEMBER_RANKS_MAX || k->nmembers < 0 ||
        k->nmembers > MEMBER_NUMBER_MAX || k->restarts < 0)
        return err_set(err, EINVAL, WHAT ": target, nmembers or restarts is out of range");
    return 0;
}

static int version_check(json_t *j, struct err *err)
{
    int version = 0;
    int rc = json_expect(j, WHAT, err, "{s?i}", "version", &version);
    if (rc == 0 && version != SAVED_JOB_VERSION)
        rc = err_set(err, ENOTSUP,
                     "the job was begun by another version of hvdrun (its state is of version %d, "
                     "this one reads %d): take the job over with that version's hvdrun attach",
                     version, SAVED_JOB_VERSION);
    return rc;
}

int saved_job_read(const char *text, size_t len, struct saved_job *ret, struct err *err)
{
    struct saved_job k = {0};
    json_int_t term = 0, change = 0;
    json_t *job = NULL, *agents = NULL, *servers = NULL, *leaving = NULL, *environment = NULL;
    const char *host = "", *home = "";
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, WHAT, &j, err);
    if (rc == 0)
        rc = version_check(j, err);
    if (rc == 0)
        rc = json_expect(j, WHAT, err,
                         "{s:I, s:I, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:s, s:s, s:o}",
                         "term", &term, "change", &change, "target", &k.target, "members",
                         &k.nmembers, "restarts", &k.restarts, "first_hosts", &k.first_hosts,
                         "leaving", &leaving, "job", &job, "agents", &agents, "servers", &servers,
                         "host", &host, "home", &home, "environment", &environment);
    if (rc == 0)
        rc = numbers_check(&k, term, change, err);
    if (rc == 0)
        rc = job_unpack(job, &k.job, err);
    if (rc == 0)
        rc = agents_unpack(agents, &k, err);
    if (rc == 0 && (k.first_hosts < 0 || k.first_hosts > k.nagents))
        rc = err_set(err, EINVAL, WHAT ": %d of %d hosts", k.first_hosts, k.nagents);
    if (rc == 0)
        rc = servers_unpack(servers, &k, err);
    if (rc == 0)
        rc = leaving_unpack(leaving, &k, err);
    if (rc == 0)
        rc = home_unpack(host, home, environment, &k, err);
    k.term = (uint32_t)term;
    k.change = (uint32_t)change;
    if (rc < 0)
        saved_job_fini(&k);
    else
        *ret = k;
    return rc;
}

void saved_job_fini(struct saved_job *k)
{
    job_fini(&k->job);
    free(k->agents);
    free(k->leaving);
    strings_free(k->environment);
    for (int i = 0; i < k->nservers; i++)
        authority_fini(&k->servers[i].authority);
    *k = (struct saved_job){0};
}

/* ---- machine and pid namespace --------------------------------------------------------------- */

void saved_job_home(char dst[SAVED_JOB_HOME])
{
    char ns[64] = "";
    auto_free char *boot = NULL;
    size_t len = 0;
    if (fd_read_file("/proc/sys/kernel/random/boot_id", 64, &boot, &len) == 0)
        boot[strcspn(boot, "\n")] = '\0';
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof(ns) - 1);
    ns[n > 0 ? n : 0] = '\0';
    snprintf(dst, SAVED_JOB_HOME, "%s%s%s", boot ? boot : "", boot && ns[0] ? " " : "", ns);
}

int saved_job_check_home(const struct saved_job *saved, struct err *err)
{
    char here[SAVED_JOB_HOME];
    saved_job_home(here);
    if (strcmp(here, saved->home) == 0)
        return 0;
    return err_set(err, EXDEV,
                   "its hvdrun ran on host %.100s, which is of another machine or container than "
                   "this one: attach there",
                   saved->host);
}

/* ---- file ----------------------------------------------------------------------------------- */

int saved_job_store(const struct saved_job *saved, const char *dir, struct err *err)
{
    char path[JOBS_DIR_MAX + 16], fresh[JOBS_DIR_MAX + 16];
    auto_free char *text = saved_job_write(saved);
    if (!text)
        return err_set(err, ENOMEM, "no memory for " WHAT);
    jobs_path(path, sizeof(path), dir, "state");
    jobs_path(fresh, sizeof(fresh), dir, "state.new");
    auto_close int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : fd_write_full(fd, text, strlen(text), deadline_in_ms(1000));
    sodium_memzero(text, strlen(text));
    if (rc == 0 && rename(fresh, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(fresh); /* the previous file stays */
    return rc < 0 ? err_sys(err, -rc, "%s", path) : 0;
}

/* Only the user may have written the file: it names programs that hvdrun will run. */
static int check_owner(const char *path, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return err_sys(err, errno, "%s", path);
    if (st.st_uid == geteuid() && (st.st_mode & 077) == 0 && !S_ISLNK(st.st_mode))
        return 0;
    return err_set(err, EPERM,
                   "%s: want it to be user %u's alone; it is user %u's, of mode %04o: it is not "
                   "used, others could have written it",
                   path, (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
}

int saved_job_load(struct saved_job *ret, const char *dir, struct err *err)
{
    char path[JOBS_DIR_MAX + 16];
    auto_free char *text = NULL;
    size_t len = 0;
    jobs_path(path, sizeof(path), dir, "state");
    int rc = check_owner(dir, err);
    if (rc == 0)
        rc = check_owner(path, err);
    if (rc < 0)
        return rc;
    rc = fd_read_file(path, SAVED_JOB_FILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    rc = saved_job_read(text, len, ret, err);
    sodium_memzero(text, len);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}
