/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_try KEYS TERM PORT: the operator's coordinator plane alone. Lines on standard input are the
 * calls that the driver would make. KEYS is a file with the plane's keys, created if it does not
 * exist, so that plane_try can be killed and started again. Prints "port N", and one line in answer
 * to each command:
 *
 *   job UID NAME WORKERS MIN MAX SLOTS BEGAN     pod JOB UID NAME WORKER BOUND DELETING OVER
 *   gone JOB UID    forget JOB    synced         facts JOB    status JOB    key JOB    ca
 *   counts          memory        token TOKEN POD    (the pod that a review returns)
 *
 * For tests and benchmarks of the plane with real agents.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "core/member/authority.h"
#include "operator/coordinator/plane.h"
#include "operator/keys.h"

#define WORDS     10
#define TOKENS    64
#define TOKEN     2048
#define QUESTIONS 256

/* What the API server would return for a token. */
struct token {
    char text[TOKEN], pod[64];
};

struct
try {
    struct plane *plane;
    struct keys keys;
    struct token tokens[TOKENS];
    int ntokens;
    struct {
        uint64_t id;
        char token[TOKEN];
    } asked[QUESTIONS];
    int nasked;
    uint64_t slowest; /* longest plane_turn(), in ns of processor time: other load does not count */
};

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        printf("error %s\n", err_text(err));
    else
        printf("ok\n");
}

/* ---- keys ----------------------------------------------------------------------------------- */

static int read_keys(const char *path, struct keys *keys, struct err *err)
{
    auto_free char *text = NULL;
    auto_json json_t *j = NULL;
    size_t len = 0;
    int rc = fd_read_file(path, 1 << 20, &text, &len);
    if (rc == 0)
        rc = json_read(text, len, path, &j, err);
    return rc == 0 ? keys_unpack(j, keys, err) : rc;
}

static int make_keys(const char *path, struct keys *keys, struct err *err)
{
    int rc = keys_make(keys, err);
    auto_json json_t *j = rc == 0 ? keys_pack(keys) : NULL;
    auto_free char *text = json_write(j);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (!text || fd < 0 || fd_write_full(fd, text, strlen(text), deadline_in_ms(1000)) < 0)
        return rc < 0 ? rc : err_sys(err, errno, "%s", path);
    return rc;
}

/* ---- commands ------------------------------------------------------------------------------- */

static void do_job(struct try *t, char **w)
{
    struct err err = {0};
    struct plane_job job = {.uid = w[1],
                            .namespace_ = "default",
                            .name = w[2],
                            .workers = atoi(w[3]),
                            .min = atoi(w[4]),
                            .max = atoi(w[5]),
                            .slots = atoi(w[6]),
                            .start_timeout = 300,
                            .began = atoi(w[7])};
    keys_job_hash(&t->keys, job.uid, job.key_hash);
    ok(plane_job(t->plane, &job, &err), &err);
}

static void do_pod(struct try *t, char **w)
{
    struct err err = {0};
    struct plane_pod pod = {.uid = w[2],
                            .name = w[3],
                            .worker = atoi(w[4]),
                            .bound = atoi(w[5]),
                            .deleting = atoi(w[6]),
                            .finished = atoi(w[7])};
    ok(plane_pod(t->plane, w[1], &pod, &err), &err);
}

static void do_facts(struct try *t, char **w)
{
    struct plane_facts f;
    if (plane_facts(t->plane, w[1], &f) < 0) {
        printf("error no job %s\n", w[1]);
        return;
    }
    auto_json json_t *j = json_pack(
        "{s:b, s:b, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:I, s:f, s:f, s:b, s:i, s:i, "
        "s:i, "
        "s:s, s:b, s:b, s:i, s:f, s:i, s:i}",
        "there", f.there, "rebuilding", f.rebuilding, "state", f.state, "epoch", (int)f.epoch,
        "size", f.size, "target", f.target, "agents", f.agents, "ready", f.ready_workers,
        "restarts", f.restarts, "waiting_for", f.waiting_for, "cause", f.last_change.cause, "at",
        (json_int_t)f.last_change.unix_ms, "ms", f.last_change.ms, "repair_ms", f.repair_ms,
        "failed", f.first_failure.known, "first_rank", f.first_failure.rank, "first_worker",
        f.first_failure.worker, "first_code", f.first_failure.code, "first_text",
        f.first_failure.text, "finished", f.any_finished, "over", f.all_finished, "code",
        f.exit_code, "batches", f.batches_per_s, "findings", f.nfindings, "failures", f.nfailures);
    auto_free char *text = json_write(j);
    printf("%s\n", text ? text : "error no memory");
}

static void do_counts(struct try *t)
{
    struct plane_counts c;
    plane_counts(t->plane, &c);
    printf("{\"jobs\":%d,\"agents\":%d,\"joins\":%llu,\"rejoins\":%llu,\"token\":%llu,"
           "\"pod\":%llu,\"body\":%llu,\"reviews\":%llu,\"losses\":%llu,\"planned\":%llu,"
           "\"lost\":%llu,\"slowest_ms\":%.1f}\n",
           c.jobs, c.agents, (unsigned long long)c.joins, (unsigned long long)c.rejoins,
           (unsigned long long)c.refused_token, (unsigned long long)c.refused_pod,
           (unsigned long long)c.refused_body, (unsigned long long)c.reviews,
           (unsigned long long)c.losses, (unsigned long long)c.epochs_planned,
           (unsigned long long)c.epochs_lost, (double)t->slowest / CLOCK_MS);
    t->slowest = 0;
}

/* Anonymous resident memory in KiB, after freed memory was returned to the kernel, as the operator
 * does every 2 s. */
static void do_memory(void)
{
    malloc_trim(0);
    auto_free char *text = NULL;
    const char *at = NULL;
    if (fd_read_file("/proc/self/status", 65536, &text, NULL) == 0)
        at = strstr(text, "RssAnon:");
    printf("%ld\n", at ? atol(at + 8) : -1);
}

static void do_ca(const struct try *t)
{
    auto_json json_t *j = json_string(t->keys.ca_pem);
    auto_free char *text = json_dumps(j, JSON_ENCODE_ANY);
    printf("%s\n", text ? text : "error");
}

static void do_token(struct try *t, char **w)
{
    struct token *k = &t->tokens[t->ntokens < TOKENS ? t->ntokens++ : 0];
    snprintf(k->text, sizeof(k->text), "%s", w[1]);
    snprintf(k->pod, sizeof(k->pod), "%s", w[2]);
    printf("ok\n");
}

static void run(struct try *t, char *line)
{
    char *w[WORDS + 1] = {0}, *save, key[KEYS_JOB_MAX];
    int n = 0;
    for (char *s = strtok_r(line, " \n", &save); s && n < WORDS; s = strtok_r(NULL, " \n", &save))
        w[n++] = s;
    const char *what = n > 0 ? w[0] : "";
    if (strcmp(what, "job") == 0 && n == 8) {
        do_job(t, w);
    } else if (strcmp(what, "pod") == 0 && n == 8) {
        do_pod(t, w);
    } else if (strcmp(what, "facts") == 0 && n == 2) {
        do_facts(t, w);
    } else if (strcmp(what, "counts") == 0) {
        do_counts(t);
    } else if (strcmp(what, "memory") == 0) {
        do_memory();
    } else if (strcmp(what, "ca") == 0) {
        do_ca(t);
    } else if (strcmp(what, "token") == 0 && n == 3) {
        do_token(t, w);
    } else if (strcmp(what, "key") == 0 && n == 2) {
        keys_job(&t->keys, w[1], key);
        printf("%s\n", key);
    } else if (strcmp(what, "status") == 0 && n == 2) {
        auto_free char *text = plane_status(t->plane, w[1]);
        printf("%s\n", text ? text : "error no such job");
    } else if (strcmp(what, "gone") == 0 && n == 3) {
        plane_pod_gone(t->plane, w[1], w[2]);
        printf("ok\n");
    } else if (strcmp(what, "forget") == 0 && n == 2) {
        plane_forget(t->plane, w[1]);
        printf("ok\n");
    } else if (strcmp(what, "synced") == 0) {
        plane_synced(t->plane);
        printf("ok\n");
    } else {
        printf("error unknown command\n");
    }
    fflush(stdout);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_review(void *arg, uint64_t id, const char *token)
{
    struct try *t = arg;
    if (t->nasked == QUESTIONS)
        return;
    t->asked[t->nasked].id = id;
    snprintf(t->asked[t->nasked++].token, sizeof(t->asked[0].token), "%s", token);
}

static void answer_reviews(struct try *t)
{
    for (; t->nasked > 0; t->nasked--) {
        struct plane_review review = {0};
        const char *token = t->asked[t->nasked - 1].token;
        for (int i = 0; i < t->ntokens; i++) {
            if (strcmp(t->tokens[i].text, token) != 0)
                continue;
            review.known = true;
            snprintf(review.pod_uid, sizeof(review.pod_uid), "%s", t->tokens[i].pod);
        }
        plane_reviewed(t->plane, t->asked[t->nasked - 1].id, &review);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_S + (uint64_t)ts.tv_nsec;
}

static int serve(struct try *t)
{
    struct buf in = {0};
    for (;;) {
        struct pollfd fds[2] = {{.fd = plane_fd(t->plane), .events = POLLIN},
                                {.fd = STDIN_FILENO, .events = POLLIN}};
        poll(fds, 2, plane_timeout_ms(t->plane));
        uint64_t before = cpu_ns();
        plane_turn(t->plane);
        uint64_t took = cpu_ns() - before;
        t->slowest = took > t->slowest ? took : t->slowest;
        answer_reviews(t);
        if (!fds[1].revents)
            continue;
        uint8_t *room = buf_reserve(&in, 65536);
        ssize_t got = room ? read(STDIN_FILENO, room, 65536) : 0;
        if (got <= 0)
            break;
        in.len += (size_t)got;
        uint8_t *end;
        while (in.len > 0 && (end = memchr(in.data, '\n', in.len))) {
            *end = '\0';
            run(t, (char *)in.data);
            buf_consume(&in, (size_t)(end - in.data) + 1);
        }
    }
    buf_fini(&in);
    return 0;
}

int main(int argc, char **argv)
{
    static struct try t;
    struct err err = {0};
    const char *names[] = {"localhost", "127.0.0.1"};
    if (argc != 4 || sodium_init() < 0)
        return 2;
    log_set_tag("plane_try");
    signal(SIGPIPE, SIG_IGN);
    int rc = access(argv[1], F_OK) == 0 ? read_keys(argv[1], &t.keys, &err)
                                        : make_keys(argv[1], &t.keys, &err);
    struct authority a = {0};
    if (rc == 0)
        rc = authority_issue(&a, t.keys.ca_pem, t.keys.ca_key_pem, names, 2, 0, &err);
    struct plane_config config = {.address = "127.0.0.1",
                                  .port = atoi(argv[3]),
                                  .cert_pem = a.cert_pem,
                                  .key_pem = a.key_pem,
                                  .term = atoll(argv[2]),
                                  .review = on_review,
                                  .arg = &t};
    if (rc == 0)
        rc = plane_create(&t.plane, &config, &err);
    authority_fini(&a);
    if (rc < 0) {
        fprintf(stderr, "plane_try: %s\n", err_text(&err));
        return 1;
    }
    printf("port %d\n", plane_port(t.plane));
    fflush(stdout);
    rc = serve(&t);
    plane_destroy(t.plane);
    keys_fini(&t.keys);
    return rc;
}
