/* SPDX-License-Identifier: Apache-2.0
 *
 * kube_try: the operator's API client, for use with a real API server.
 *
 *   kube_try [--kubeconfig FILE] [--seconds N] [--log-level LEVEL] COMMAND
 *
 *   watch GROUP/VERSION/PLURAL [NAMESPACE] [LABELS]
 *   list  GROUP/VERSION/PLURAL [NAMESPACE] [LABELS]    page by page, then memory
 *   call  METHOD PATH [json|merge|apply BODY]
 *   lead  NAMESPACE LEASE IDENTITY
 *
 * GROUP is "core" for pods and nodes. A cached item is a projection: name, uid, and of a pod
 * node and phase.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "operator/api/election.h"
#include "operator/api/informer.h"

static struct loop loop;
static int exit_code;

struct item {
    char *name, *uid, *node, *phase;
};

static void item_destroy(void *p)
{
    struct item *item = p;
    free(item->name);
    free(item->uid);
    free(item->node);
    free(item->phase);
    free(item);
}

static int item_parse(void *arg, json_t *object, void **ret, struct err *err)
{
    (void)arg;
    const char *name, *uid, *node = "", *phase = "";
    int rc = json_expect(object, "an object", err, "{s:{s:s, s:s}, s?{s?s}, s?{s?s}}", "metadata",
                         "name", &name, "uid", &uid, "spec", "nodeName", &node, "status", "phase",
                         &phase);
    if (rc < 0)
        return rc;
    struct item *item = calloc(1, sizeof(*item));
    if (!item)
        return -ENOMEM;
    item->name = strdup(name);
    item->uid = strdup(uid);
    item->node = strdup(node);
    item->phase = strdup(phase);
    *ret = item;
    return 0;
}

static bool quiet;
static uint64_t began;

static void on_changed(void *arg, const char *key, const void *before, const void *after)
{
    const struct item *item = after ? after : before;
    (void)arg;
    if (!quiet)
        printf("%-8s %s uid=%s node=%s phase=%s\n",
               !before ? "new"
               : after ? "changed"
                       : "gone",
               key, item->uid, item->node, item->phase);
}

static void print_memory(const struct informer *inf)
{
    char line[128];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmHWM", 5) == 0 || strncmp(line, "RssAnon", 7) == 0)
            printf("%s", line);
    if (f)
        fclose(f);
    struct mallinfo2 m = mallinfo2();
    printf("%zu objects, heap in use %zu bytes\n", informer_size(inf), m.uordblks);
}

static void on_synced(void *arg)
{
    struct informer **inf = arg;
    printf("synced   %zu objects after %.3f s\n", informer_size(*inf),
           (double)(clock_ns() - began) / (double)CLOCK_S);
    if (quiet)
        print_memory(*inf);
    if (quiet)
        loop_stop(&loop);
}

static int try_cache(struct api *api, char **argv, bool list, struct err *err)
{
    static struct informer *inf;
    static char where[256];
    snprintf(where, sizeof(where), "%s", argv[0]);
    char *group = where, *version = strchr(where, '/');
    char *plural = version ? strchr(version + 1, '/') : NULL;
    if (!plural)
        return err_set(err, EINVAL, "want GROUP/VERSION/PLURAL");
    *version++ = *plural++ = '\0';
    quiet = list;
    began = clock_ns();
    struct informer_config config = {
        .api = api,
        .resource = {strcmp(group, "core") == 0 ? "" : group, version, plural},
        .namespace = argv[1],
        .labels = argv[1] ? argv[2] : NULL,
        .paged = list,
        .parse = item_parse,
        .destroy = item_destroy,
        .changed = on_changed,
        .synced = on_synced,
        .arg = &inf};
    int rc = informer_open(&inf, &config, err);
    if (rc < 0)
        return rc;
    rc = loop_run(&loop);
    const struct informer_counts *c = informer_counts(inf);
    printf("%s: lists %llu streams %llu follows %llu events %llu bookmarks %llu gone %llu failures "
           "%llu%s%s\n",
           watch_state_name(informer_state(inf)), (unsigned long long)c->lists,
           (unsigned long long)c->streams, (unsigned long long)c->follows,
           (unsigned long long)c->events, (unsigned long long)c->bookmarks,
           (unsigned long long)c->gone, (unsigned long long)c->failures,
           *informer_problem(inf)->text ? ": " : "", informer_problem(inf)->text);
    informer_close(inf);
    return rc;
}

static void on_answer(void *arg, const struct api_answer *answer)
{
    (void)arg;
    printf("%ld %s %s\n%s\n", answer->status, answer->reason, answer->message, answer->body);
    exit_code = answer->status >= 200 && answer->status < 300 ? 0 : 1;
    loop_stop(&loop);
}

static int try_call(struct api *api, char **argv, struct err *err)
{
    struct api_request q = {.method = argv[0], .path = argv[1], .timeout_ms = 30000};
    if (!argv[0] || !argv[1] || (argv[2] && !argv[3]))
        return err_set(err, EINVAL, "want METHOD PATH [json|merge|apply BODY]");
    q.idempotent = strcmp(argv[0], "POST") != 0;
    if (argv[2]) {
        q.body = argv[3];
        q.kind = strcmp(argv[2], "apply") == 0   ? API_APPLY
                 : strcmp(argv[2], "merge") == 0 ? API_MERGE_PATCH
                                                 : API_JSON;
    }
    int rc = api_send(api, &q, on_answer, NULL, NULL, err);
    return rc < 0 ? rc : loop_run(&loop);
}

static void on_started(void *arg, int64_t term)
{
    (void)arg;
    printf("leading, term %lld\n", (long long)term);
    fflush(stdout);
}

static void on_stopped(void *arg)
{
    (void)arg;
    printf("not leading\n");
    fflush(stdout);
}

static void on_left(void *arg)
{
    (void)arg;
    loop_stop(&loop);
}

static struct election *election;

static int try_lead(struct api *api, char **argv, struct err *err)
{
    if (!argv[0] || !argv[1] || !argv[2])
        return err_set(err, EINVAL, "want NAMESPACE LEASE IDENTITY");
    struct election_config config = {.api = api,
                                     .namespace = argv[0],
                                     .name = argv[1],
                                     .identity = argv[2],
                                     .started = on_started,
                                     .stopped = on_stopped};
    int rc = election_open(&election, &config, err);
    if (rc == 0)
        rc = loop_run(&loop);
    if (election && *election_problem(election)->text)
        printf("lease: %s\n", election_problem(election)->text);
    election_close(election);
    return rc;
}

static void on_time(void *arg)
{
    (void)arg;
    if (election)
        election_leave(election, on_left);
    else
        loop_stop(&loop);
}

static void on_signal(void *arg, uint32_t events)
{
    (void)events;
    if (loop_signal_next(arg))
        on_time(NULL);
}

static int run_it(struct api *api, char **argv, struct err *err)
{
    if (argv[0] && argv[1] && (strcmp(argv[0], "watch") == 0 || strcmp(argv[0], "list") == 0))
        return try_cache(api, argv + 1, argv[0][0] == 'l', err);
    if (argv[0] && strcmp(argv[0], "call") == 0)
        return try_call(api, argv + 1, err);
    if (argv[0] && strcmp(argv[0], "lead") == 0)
        return try_lead(api, argv + 1, err);
    return err_set(err, EINVAL, "want watch, list, call or lead");
}

int main(int argc, char **argv)
{
    const char *kubeconfig = NULL;
    int seconds = 0;
    enum log_level level;
    struct access a = {0};
    struct api *api = NULL;
    struct err err = {0};
    struct loop_timer timer = {0};
    struct loop_fd signals;
    sigset_t set;
    for (argv++; argc > 2 && argv[0] && argv[1] && argv[0][0] == '-'; argv += 2) {
        if (strcmp(argv[0], "--kubeconfig") == 0)
            kubeconfig = argv[1];
        else if (strcmp(argv[0], "--seconds") == 0)
            seconds = atoi(argv[1]);
        else if (strcmp(argv[0], "--log-level") == 0 && log_level_parse(argv[1], &level) == 0)
            log_set_level(level);
    }
    setlinebuf(stdout);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    int rc = loop_init(&loop);
    if (rc == 0)
        rc = loop_signals_start(&loop, &signals, &set, on_signal, &signals);
    if (rc == 0)
        rc = access_load(kubeconfig, NULL, &a, &err);
    if (rc == 0)
        rc = api_open(&api, &loop, &a, &err);
    if (rc == 0 && seconds > 0)
        loop_timer_start(&loop, &timer, (uint64_t)seconds * 1000, on_time, NULL);
    if (rc == 0)
        rc = run_it(api, argv, &err);
    if (rc < 0)
        fprintf(stderr, "kube_try: %s\n", err_text(&err));
    api_close(api);
    access_fini(&a);
    loop_fini(&loop);
    return rc < 0 ? 2 : exit_code;
}
