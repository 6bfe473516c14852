/* SPDX-License-Identifier: Apache-2.0
 *
 * agents_try URL CA TOKEN JOB N SECONDS: N agents in one process, without ranks: each joins as pod
 * "JOB-pod-I" over a TLS connection of its own, then polls for events. @FILE in place of N: a file
 * with a pod's uid in each line. CA and TOKEN are files. Prints "joined N after MS ms, SENT
 * requests" once, and SECONDS later "answers A failures F". For measuring what connected agents
 * cost a coordinator.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/loop.h"
#include "core/member/client.h"
#include "core/member/protocol.h"

#define JOIN_S 120 /* seconds within which all agents must have joined */

struct crowd;

struct one {
    struct crowd *crowd;
    struct client *client;
    struct loop_timer retry;
    char uid[128];
    bool joined;
};

struct crowd {
    struct loop loop;
    struct loop_timer end;
    uint64_t begun;
    int n, joined, seconds;
    long sent, answers, failures;
    struct one *list;
    char **pods; /* NULL: named by number */
};

static void join(void *arg);
static void on_end(void *arg);

static void poll_events(struct one *o);

static void on_events(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    bool well = answer->status == 200 || answer->status == 204;
    o->crowd->answers += well;
    o->crowd->failures += !well;
    if (well)
        poll_events(o);
    else
        loop_timer_start(&o->crowd->loop, &o->retry, 500, join, o);
}

static void poll_events(struct one *o)
{
    char path[256];
    snprintf(path, sizeof(path), "/v1/events?agent=%s&after=999999&wait=2", o->uid);
    o->crowd->sent++;
    client_send(o->client, path, NULL, 10000, on_events, o, NULL);
}

static void on_joined(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    struct crowd *c = o->crowd;
    if (answer->status != 200) {
        c->failures += answer->status != 503;
        loop_timer_start(&c->loop, &o->retry, 200, join, o);
        return;
    }
    c->joined += !o->joined;
    o->joined = true;
    if (c->joined == c->n) {
        printf("joined %d after %llu ms, %ld requests\n", c->n,
               (unsigned long long)((clock_ns() - c->begun) / CLOCK_MS), c->sent);
        fflush(stdout);
        c->joined++; /* reported */
        loop_timer_start(&c->loop, &c->end, (uint64_t)c->seconds * 1000, on_end, c);
    }
    poll_events(o);
}

static void join(void *arg)
{
    struct one *o = arg;
    struct join_body body = {.slots = 1, .pid = 1};
    snprintf(body.agent, sizeof(body.agent), "%s", o->uid);
    snprintf(body.host, sizeof(body.host), "here");
    snprintf(body.version, sizeof(body.version), "0");
    auto_free char *text = join_write(&body);
    o->crowd->sent++;
    if (text)
        client_send(o->client, "/v1/join", text, 30000, on_joined, o, NULL);
}

static int start(struct crowd *c, int i, char **argv, const char *ca, const char *token)
{
    char url[512], pod[120];
    struct one *o = &c->list[i];
    o->crowd = c;
    if (c->pods)
        snprintf(pod, sizeof(pod), "%s", c->pods[i]);
    else
        snprintf(pod, sizeof(pod), "%.100s-pod-%d", argv[4], i);
    snprintf(url, sizeof(url), "%s/jobs/%s/pods/%s", argv[1], argv[4], pod);
    snprintf(o->uid, sizeof(o->uid), "%s.1", pod);
    struct client_config config = {.loop = &c->loop, .url = url, .ca_pem = ca, .token = token};
    struct err err;
    if (client_open(&o->client, &config, &err) < 0) {
        fprintf(stderr, "agents_try: %s\n", err_text(&err));
        return -1;
    }
    join(o);
    return 0;
}

static void on_end(void *arg)
{
    struct crowd *c = arg;
    loop_stop(&c->loop);
}

/* Returns the number of agents: arg itself, or the lines of the file of uids that it names.
 * Negative: the file cannot be read. */
static int count_pods(struct crowd *c, const char *arg)
{
    char *text = NULL, *rest, *line;
    if (arg[0] != '@')
        return atoi(arg);
    if (fd_read_file(arg + 1, 1 << 20, &text, NULL) < 0)
        return -1;
    c->pods = calloc(strlen(text) + 1, sizeof(*c->pods));
    for (line = strtok_r(text, "\n", &rest); c->pods && line; line = strtok_r(NULL, "\n", &rest))
        c->pods[c->n++] = line;
    return c->pods ? c->n : -1; /* text is not freed: pods point into it */
}

int main(int argc, char **argv)
{
    static struct crowd c;
    auto_free char *ca = NULL;
    char *token = NULL;
    struct rlimit limit;
    if (argc != 7 || sodium_init() < 0 || fd_read_file(argv[2], 65536, &ca, NULL) < 0 ||
        client_read_token(argv[3], &token, NULL) < 0 || loop_init(&c.loop) < 0)
        return 2;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    c.n = count_pods(&c, argv[5]);
    if (c.n <= 0)
        return 2;
    c.seconds = atoi(argv[6]);
    c.list = calloc((size_t)c.n, sizeof(*c.list));
    c.begun = clock_ns();
    for (int i = 0; c.list && i < c.n; i++)
        if (start(&c, i, argv, ca, token) < 0)
            return 1;
    loop_timer_start(&c.loop, &c.end, JOIN_S * 1000, on_end, &c);
    loop_run(&c.loop);
    printf("answers %ld failures %ld\n", c.answers, c.failures);
    for (int i = 0; i < c.n; i++)
        client_close(c.list[i].client);
    free(c.list);
    free(c.pods ? c.pods[0] : NULL);
    free(c.pods);
    free(token);
    return 0;
}
