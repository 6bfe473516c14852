/* SPDX-License-Identifier: Apache-2.0
 *
 * dns: resolves names: the machine's own, the cluster's API, the other workers.
 *
 * Each runs in a child of its own, since a dead name server holds a look-up for many seconds.
 * Answers: "hostname" name addr.<i>.{ip family} error ms; "k8s-dns" name ip error ms; "workers"
 * name.<i>.{name source ip error} tried_ms. Names that do not resolve yet are asked again until
 * half of the setting's time-out, at most 5 s, is over: a pod's name appears only once it runs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/sock.h"
#include "core/json/json.h"
#include "diagnostics/probe.h"

#define NAMES_MAX 64
#define LOOKUPS   16 /* look-ups at the same time */
#define AGAIN_MS  200
#define TRY_MS    5000

static bool ip_text(const struct addrinfo *a, char dst[INET6_ADDRSTRLEN])
{
    const void *bytes = NULL;
    if (a->ai_family == AF_INET)
        bytes = &((const struct sockaddr_in *)a->ai_addr)->sin_addr;
    else if (a->ai_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
    return bytes && inet_ntop(a->ai_family, bytes, dst, INET6_ADDRSTRLEN);
}

/* The message of gai_strerror(), or of the errno behind EAI_SYSTEM. */
static const char *why_not(int rc)
{
    return rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
}

static int ms_since(uint64_t start)
{
    return (int)((clock_ns() - start) / CLOCK_MS);
}

/* ---- the machine's own name ---- */

static int run_hostname(struct buf *out, const struct machine *m, const struct setting *s)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char name[256] = "", ip[INET6_ADDRSTRLEN];
    uint64_t start = clock_ns();
    int n = 0;
    if (gethostname(name, sizeof(name) - 1) < 0)
        return -errno;
    answer_put(out, "name", "%s", name);
    int rc = getaddrinfo(name, NULL, &hints, &all);
    const char *error = rc ? why_not(rc) : NULL;
    answer_put(out, "ms", "%d", ms_since(start));
    if (error) {
        answer_put(out, "error", "%s", error);
        return 0;
    }
    for (const struct addrinfo *a = all; a && n < NAMES_MAX; a = a->ai_next) {
        if (!ip_text(a, ip))
            continue;
        answer_put_at(out, "addr", n, "ip", "%s", ip);
        answer_put_at(out, "addr", n, "family", "%d", a->ai_family == AF_INET ? 4 : 6);
        n++;
    }
    freeaddrinfo(all);
    return 0;
}

/* ---- the cluster's name service ---- */

static int run_k8s_dns(struct buf *out, const struct machine *m, const struct setting *s)
{
    static const char name[] = "kubernetes.default.svc";
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char ip[INET6_ADDRSTRLEN];
    uint64_t start = clock_ns();
    if (!machine_env(m, "KUBERNETES_SERVICE_HOST"))
        return 0;
    answer_put(out, "name", "%s", name);
    int rc = getaddrinfo(name, NULL, &hints, &all);
    const char *error = rc ? why_not(rc) : NULL;
    answer_put(out, "ms", "%d", ms_since(start));
    if (error)
        answer_put(out, "error", "%s", error);
    else if (all && ip_text(all, ip))
        answer_put(out, "ip", "%s", ip);
    if (all)
        freeaddrinfo(all);
    return 0;
}

/* ---- the other workers ---- */

struct names {
    char name[NAMES_MAX][SOCK_HOST_MAX];
    const char *source[NAMES_MAX];
    int n;
};

/* Adds a host unless it is an address or in the list. */
static void add_name(struct names *names, const char *name, size_t len, const char *source)
{
    char host[SOCK_HOST_MAX];
    struct sock_addr numeric;
    if (len == 0 || len >= sizeof(host) || names->n == NAMES_MAX)
        return;
    memcpy(host, name, len);
    host[len] = '\0';
    if (sock_parse_ip(host, &numeric, NULL) == 0)
        return;
    for (int i = 0; i < names->n; i++) {
        if (strcmp(names->name[i], host) == 0)
            return;
    }
    snprintf(names->name[names->n], SOCK_HOST_MAX, "%s", host);
    names->source[names->n++] = source;
}

/* Adds the host of "name" or "name:port". "[v6]:port" is an address and not added. */
static void add_host(struct names *names, const char *text, const char *source)
{
    if (text && *text != '[')
        add_name(names, text, strcspn(text, ": \t/"), source);
}

/* Adds the hosts of a file with lines "name slots=8" or "name:8"; # begins a comment. */
static void add_hostfile(struct names *names, const struct machine *m, const char *path)
{
    auto_free char *text = NULL;
    while (*path == '/')
        path++;
    if (machine_read(m, path, &text, NULL) < 0)
        return;
    for (const char *line = text; *line;) {
        const char *at = line + strspn(line, " \t");
        if (*at != '#' && *at != '[')
            add_name(names, at, strcspn(at, ": \t\r\n#"), "hostfile");
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

/* Adds the hosts of {"cluster": {"worker": ["host:port", ...], "chief": [...]}}. */
static void add_tf_config(struct names *names, const char *text)
{
    auto_json json_t *root = NULL;
    const char *kind;
    json_t *list, *host;
    size_t i;
    if (!text || json_read(text, strlen(text), "TF_CONFIG", &root, NULL) < 0)
        return;
    json_object_foreach(json_object_get(root, "cluster"), kind, list)
    {
        json_array_foreach(list, i, host)
        {
            add_host(names, json_string_value(host), "TF_CONFIG");
        }
    }
}

static void find_names(const struct machine *m, struct names *names)
{
    static const char *const hosts[] = {"HVD_RENDEZVOUS", "MASTER_ADDR"};
    static const char *const files[] = {"OMPI_MCA_orte_default_hostfile",
                                        "PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOST_FILE"};
    for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++)
        add_host(names, machine_env(m, hosts[i]), hosts[i]);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        const char *path = machine_env(m, files[i]);
        if (path && *path == '/')
            add_hostfile(names, m, path);
    }
    add_hostfile(names, m, "etc/mpi/hostfile");
    add_tf_config(names, machine_env(m, "TF_CONFIG"));
}

/* Results of the look-ups; threads write them under the lock. */
struct lookups {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    const struct names *names;
    int threads, running;
    uint64_t deadline;
    struct {
        bool asked;
        int rc, error; /* from getaddrinfo; error: the errno behind EAI_SYSTEM */
        char ip[INET6_ADDRSTRLEN];
    } found[NAMES_MAX];
};

struct share {
    struct lookups *all;
    int first; /* this thread resolves the names first, first + threads ... */
};

/* Resolves name i; returns true when it has an address. */
static bool look_up(struct lookups *l, int i)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char ip[INET6_ADDRSTRLEN] = "";
    int rc = getaddrinfo(l->names->name[i], NULL, &hints, &all), error = errno;
    for (const struct addrinfo *a = rc ? NULL : all; a && !*ip; a = a->ai_next)
        ip_text(a, ip);
    if (all)
        freeaddrinfo(all);
    pthread_mutex_lock(&l->lock);
    l->found[i].asked = true;
    l->found[i].rc = rc;
    l->found[i].error = error;
    memcpy(l->found[i].ip, ip, sizeof(ip));
    pthread_mutex_unlock(&l->lock);
    return rc == 0;
}

/* The thread returns instead of calling pthread_exit(), and getaddrinfo_a(3) is not used: both
 * need libgcc_s, which small images lack. */
static void *look_up_share(void *arg)
{
    const struct timespec pause = {0, AGAIN_MS * (long)CLOCK_MS};
    struct share *share = arg;
    struct lookups *l = share->all;
    bool known[NAMES_MAX] = {false};
    for (int left = 1; left && !deadline_passed(l->deadline);) {
        left = 0;
        for (int i = share->first; i < l->names->n; i += l->threads) {
            known[i] = known[i] || look_up(l, i);
            left += !known[i];
        }
        if (left)
            nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&l->lock);
    l->running--;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Resolves all names in parallel, again and again until all are known or the deadline has
 * passed. Look-ups that still run then end with this process. Returns with the lock held. */
static void look_up_all(struct lookups *l)
{
    static struct share shares[LOOKUPS];
    const struct timespec until = {(time_t)(l->deadline / CLOCK_S), (long)(l->deadline % CLOCK_S)};
    l->threads = l->names->n < LOOKUPS ? l->names->n : LOOKUPS;
    l->running = l->threads;
    for (int i = 0; i < l->threads; i++) {
        pthread_t thread;
        shares[i] = (struct share){.all = l, .first = i};
        if (pthread_create(&thread, NULL, look_up_share, &shares[i]) == 0)
            pthread_detach(thread);
        else
            look_up_share(&shares[i]); /* no more threads allowed: this thread resolves them */
    }
    pthread_mutex_lock(&l->lock);
    while (l->running > 0 &&
           pthread_cond_clockwait(&l->ended, &l->lock, CLOCK_MONOTONIC, &until) == 0)
        ;
}

static void put_names(struct buf *out, const struct lookups *l)
{
    for (int i = 0; i < l->names->n; i++) {
        answer_put_at(out, "name", i, "name", "%s", l->names->name[i]);
        answer_put_at(out, "name", i, "source", "%s", l->names->source[i]);
        errno = l->found[i].error;
        if (!l->found[i].asked)
            answer_put_at(out, "name", i, "error", "the name server does not answer");
        else if (l->found[i].rc)
            answer_put_at(out, "name", i, "error", "%s", why_not(l->found[i].rc));
        else
            answer_put_at(out, "name", i, "ip", "%s", l->found[i].ip);
    }
}

static int run_workers(struct buf *out, const struct machine *m, const struct setting *s)
{
    static struct names names;
    static struct lookups lookups = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .names = &names};
    uint64_t start = clock_ns(), half = (uint64_t)s->timeout_ms / 2;
    find_names(m, &names);
    lookups.deadline = deadline_in_ms(half < TRY_MS ? half : TRY_MS);
    look_up_all(&lookups);
    answer_put(out, "tried_ms", "%d", ms_since(start));
    put_names(out, &lookups);
    pthread_mutex_unlock(&lookups.lock);
    return 0;
}

static const struct probe probes[] = {
    {.name = "hostname", .level = 1, .ms = 4000, .run = run_hostname},
    {.name = "k8s-dns", .level = 1, .ms = 4000, .run = run_k8s_dns},
    {.name = "workers", .level = 1, .run = run_workers},
};

const struct probe_table probes_dns = {probes, sizeof(probes) / sizeof(probes[0])};
