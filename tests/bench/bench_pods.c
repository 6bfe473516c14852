/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_pods: creates objects on an API server, --parallel at a time, and measures the time until
 * all pods with a label exist, and until all are Running. In bench-operator it creates the pods
 * themselves for the floor, and jobs for the measurement: both wait the same way.
 *
 *   bench_pods --kubeconfig FILE --labels SELECTOR --running N [--parallel 16] [--seconds 300]
 * OBJECTS
 *
 * OBJECTS: a file with a line for each object: the path of the collection, a tab, the object in
 * JSON. Prints lines of a word, seconds since the first create and a number of pods: "step" as pods
 * become Running, "there" when N exist, "created" when the last create was answered, "running" when
 * N run.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "operator/api/informer.h"

#define FILE_MAX_BYTES ((size_t)64 << 20)
#define STEP_MS        10 /* between two steps that are printed */

static struct loop loop;
static struct api *api;
static struct {
    const char *kubeconfig, *labels, *objects;
    int running, parallel, seconds;
} want = {.parallel = 16, .seconds = 300};

static char *todo;        /* the objects that are not sent yet */
static int out, refusals; /* requests without an answer; answers with an error */
static int there, running;
static bool all_there, all_created, all_running;
static uint64_t began, step_ns;

static void fail(const struct err *err)
{
    fprintf(stderr, "bench_pods: %s\n", err_text(err));
    exit(1);
}

static void say(const char *what, int pods)
{
    printf("%s %.3f %d\n", what, (double)(clock_ns() - began) / (double)CLOCK_S, pods);
}

static void say_once(bool *said, bool now, const char *what)
{
    if (now && !*said)
        say(what, want.running);
    *said |= now;
}

static void look(void)
{
    say_once(&all_there, there >= want.running, "there");
    say_once(&all_created, !*todo && out == 0, "created");
    say_once(&all_running, running >= want.running, "running");
    if (all_created && all_running)
        loop_stop(&loop);
}

static void send_next(void);

static void on_answer(void *arg, const struct api_answer *answer)
{
    (void)arg;
    out--;
    if (answer->status < 200 || answer->status > 299) {
        fprintf(stderr, "bench_pods: %ld %s %s\n", answer->status, answer->reason, answer->message);
        refusals++;
    }
    send_next();
    look();
}

static void send_next(void)
{
    struct err err = {0};
    while (*todo && out < want.parallel) {
        char *path = todo, *body = strchr(path, '\t'), *end = body ? strchr(body, '\n') : NULL;
        if (!end) {
            err_set(&err, EINVAL, "%s: want a path, a tab, an object and a newline", want.objects);
            fail(&err);
        }
        *body++ = *end = '\0';
        todo = end + 1;
        struct api_request q = {
            .method = "POST", .path = path, .body = body, .timeout_ms = want.seconds * 1000};
        if (api_send(api, &q, on_answer, NULL, NULL, &err) < 0)
            fail(&err);
        out++;
    }
}

/* ---- the pods: a bool each, Running ------------------------------------------------------------
 */

static int pod_parse(void *arg, json_t *object, void **ret, struct err *err)
{
    (void)arg;
    const char *phase = "";
    int rc = json_expect(object, "a pod", err, "{s?{s?s}}", "status", "phase", &phase);
    bool *is_running = rc < 0 ? NULL : malloc(sizeof(*is_running));
    if (!is_running)
        return rc < 0 ? rc : -ENOMEM;
    *is_running = strcmp(phase, "Running") == 0;
    *ret = is_running;
    return 0;
}

static void pod_changed(void *arg, const char *key, const void *before, const void *after)
{
    const bool *was = before, *is = after;
    (void)arg, (void)key;
    there += (is != NULL) - (was != NULL);
    running += (is && *is) - (was && *was);
    if (began && clock_ns() - step_ns > STEP_MS * CLOCK_MS) {
        step_ns = clock_ns();
        say("step", running);
    }
    look();
}

static void pods_synced(void *arg)
{
    (void)arg;
    if (began)
        return;
    if (there > 0) {
        struct err err = {0};
        err_set(&err, EEXIST, "there are %d pods with %s already", there, want.labels);
        fail(&err);
    }
    began = step_ns = clock_ns();
    send_next();
    look();
}

static void on_time(void *arg)
{
    (void)arg;
    fprintf(
        stderr,
        "bench_pods: after %d s: %d of %d pods there, %d Running, %d creates without an answer\n",
        want.seconds, there, want.running, running, out);
    exit(1);
}

/* ---- the program ----------------------------------------------------------------------------- */

static void read_arguments(char **argv)
{
    struct err err = {0};
    for (; argv[0] && argv[1]; argv += 2) {
        if (strcmp(argv[0], "--kubeconfig") == 0)
            want.kubeconfig = argv[1];
        else if (strcmp(argv[0], "--labels") == 0)
            want.labels = argv[1];
        else if (strcmp(argv[0], "--running") == 0)
            want.running = atoi(argv[1]);
        else if (strcmp(argv[0], "--parallel") == 0)
            want.parallel = atoi(argv[1]);
        else if (strcmp(argv[0], "--seconds") == 0)
            want.seconds = atoi(argv[1]);
        else
            break;
    }
    want.objects = argv[0];
    if (argv[0] && !argv[1] && want.labels && want.running > 0 && want.parallel > 0 &&
        want.seconds > 0)
        return;
    err_set(&err, EINVAL, "want --kubeconfig FILE --labels SELECTOR --running N OBJECTS");
    fail(&err);
}

int main(int argc, char **argv)
{
    struct access access_to = {0};
    struct informer *pods = NULL;
    struct loop_timer timer = {0};
    struct err err = {0};
    char *text = NULL;
    size_t len;
    (void)argc;
    read_arguments(argv + 1);
    int rc = fd_read_file(want.objects, FILE_MAX_BYTES, &text, &len);
    if (rc < 0) {
        err_sys(&err, -rc, "%s", want.objects);
        fail(&err);
    }
    todo = text;
    struct informer_config config = {.resource = {"", "v1", "pods"},
                                     .labels = want.labels,
                                     .parse = pod_parse,
                                     .destroy = free,
                                     .changed = pod_changed,
                                     .synced = pods_synced};
    setlinebuf(stdout);
    if (loop_init(&loop) < 0 || access_load(want.kubeconfig, NULL, &access_to, &err) < 0 ||
        api_open(&api, &loop, &access_to, &err) < 0)
        fail(&err);
    config.api = api;
    loop_timer_start(&loop, &timer, (uint64_t)want.seconds * 1000, on_time, NULL);
    if (informer_open(&pods, &config, &err) < 0 || loop_run(&loop) < 0)
        fail(&err);
    informer_close(pods);
    api_close(api);
    access_fini(&access_to);
    loop_fini(&loop);
    free(text);
    return refusals > 0;
}
