/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: lists the jobs of this user that hvdrun runs on this machine. It asks their coordinators
 * over private sockets (core/member/README.md). Runs in a child of its own and changes nothing.
 *
 * Answer "jobs": rank.<i>.{job rank host state batches idle_ms}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/loop.h"
#include "core/json/json.h"
#include "core/member/client.h"
#include "diagnostics/probe.h"

#define JOBS_MAX  16
#define RANKS_MAX 1024
#define ASK_MS    1000
#define TOKEN_MAX 256

struct asking {
    struct buf *out;
    int ranks; /* found so far */
    int jobs;
    bool done;
};

static void put_rank(struct asking *a, const char *job, json_t *j)
{
    const char *host = "", *state = "";
    int rank = 0;
    json_int_t batches = 0, idle = 0;
    if (a->ranks == RANKS_MAX ||
        json_expect(j, "a rank", NULL, "{s:i, s:s, s:s, s:I, s:I}", "rank", &rank, "host", &host,
                    "state", &state, "batches", &batches, "idle_ms", &idle) < 0)
        return;
    answer_put_at(a->out, "rank", a->ranks, "job", "%.100s", job);
    answer_put_at(a->out, "rank", a->ranks, "rank", "%d", rank);
    answer_put_at(a->out, "rank", a->ranks, "host", "%.100s", host);
    answer_put_at(a->out, "rank", a->ranks, "state", "%.20s", state);
    answer_put_at(a->out, "rank", a->ranks, "batches", "%lld", (long long)batches);
    answer_put_at(a->out, "rank", a->ranks, "idle_ms", "%lld", (long long)idle);
    a->ranks++;
}

static void on_status(void *arg, const struct client_answer *answer)
{
    struct asking *a = arg;
    const char *job = "";
    json_t *ranks = NULL;
    auto_json json_t *j = NULL;
    a->done = true;
    if (answer->status != 200 || json_read(answer->body, answer->len, "a job", &j, NULL) < 0 ||
        json_expect(j, "a job", NULL, "{s:s, s:o}", "job", &job, "ranks", &ranks) < 0)
        return;
    a->jobs++;
    for (size_t i = 0; i < json_array_size(ranks); i++)
        put_rank(a, job, json_array_get(ranks, i));
}

static void ask(struct asking *a, const char *sock, const char *token)
{
    struct loop loop;
    struct client *client = NULL;
    uint64_t deadline = deadline_in_ms(ASK_MS);
    if (loop_init(&loop) < 0)
        return;
    struct client_config config = {
        .loop = &loop, .url = "http://job", .unix_path = sock, .token = token};
    a->done = false;
    if (client_open(&client, &config, NULL) == 0 &&
        client_send(client, "/v1/status", NULL, ASK_MS, on_status, a, NULL) == 0)
        while (!a->done && !deadline_passed(deadline))
            loop_once(&loop, deadline_poll_ms(deadline));
    client_close(client);
    loop_fini(&loop);
}

/* Asks the job of a folder "BASE/hvdrun-abc123" that has a socket and a token. The folder must
 * belong to this user: any user can create such a folder in /tmp. */
static void ask_folder(struct asking *a, const char *base, const char *name)
{
    char sock[400], path[400];
    auto_free char *token = NULL;
    struct stat st;
    snprintf(path, sizeof(path), "%s/%.40s", base, name);
    if (strncmp(name, "hvdrun-", 7) != 0 || a->jobs == JOBS_MAX || lstat(path, &st) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return;
    snprintf(sock, sizeof(sock), "%s/%.40s/sock", base, name);
    snprintf(path, sizeof(path), "%s/%.40s/token", base, name);
    if (fd_read_file(path, TOKEN_MAX, &token, NULL) < 0)
        return;
    token[strcspn(token, "\r\n")] = '\0';
    ask(a, sock, token);
}

static int run_jobs(struct buf *out, const struct machine *m, const struct setting *s)
{
    const char *bases[] = {machine_env(m, "XDG_RUNTIME_DIR"), machine_env(m, "TMPDIR"), "/tmp",
                           "/dev/shm", machine_env(m, "HVD_RUN_DIR")};
    struct asking a = {.out = out};
    for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
        auto_free char **names = NULL;
        bool again = false;
        for (size_t k = 0; bases[b] && k < b; k++)
            again |= bases[k] && strcmp(bases[k], bases[b]) == 0;
        if (!bases[b] || bases[b][0] != '/' || strlen(bases[b]) > 300 || again ||
            machine_list(m, bases[b] + 1, &names, NULL) < 0)
            continue;
        for (size_t i = 0; names[i]; i++)
            ask_folder(&a, bases[b], names[i]);
    }
    answer_put(out, "jobs", "%d", a.jobs);
    return 0;
}

static const struct probe rows[] = {{.name = "jobs", .level = 1, .run = run_jobs}};

const struct probe_table probes_jobs = {rows, sizeof(rows) / sizeof(rows[0])};
