/* SPDX-License-Identifier: Apache-2.0
 *
 * agents_try URL CA AGENTS JITTER_MS RANKS: many agents in one process, without processes of ranks,
 * each over a TLS connection of its own (core/member/client). AGENTS is a file with a line for
 * each: uid of the job, uid of the pod, token. JITTER_MS as HVD_REJOIN_JITTER_MS. RANKS 1: each
 * agent has a rank that says HELLO and then trains, as far as the coordinator can see; 0: agents
 * only. When another coordinator serves their job, agents rejoin it with what they know. Ends with
 * its standard input. Prints lines:
 *
 *   joined N MS         all agents have joined, after MS ms
 *   trains N MS         all have the roster of their job
 *   back N MS           all have rejoined, MS ms after the first one found the next coordinator
 *   refused STATUS TEXT the coordinator turned an agent away, which gives up
 *   told TYPE           the coordinator told of a member's end, or asked one to leave
 *   answers A failures F requests R   at the end. failures: responses other than 2xx, 404 and 503
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/loop.h"
#include "core/json/json.h"
#include "core/member/client.h"
#include "core/member/protocol.h"
#include "core/member/rejoin.h"

#define TIMEOUT_MS 4500 /* as in agent/ */
#define RETRY_MS   100
#define CARD_BYTES 120

/* The newest roster of a job, which all its agents in this process share. */
struct job {
    char uid[64];
    struct roster_body world;
    struct list node;
};

struct one {
    struct job *job;
    struct client *client;
    struct loop_timer retry;
    void (*again)(struct one *o);
    char uid[128];
    int member; /* -1: none yet */
    uint64_t seq;
    uint32_t epoch; /* of the roster that the agent has, 0: none */
    uint64_t notes; /* number of the last note that was read */
    bool joined, gone;
    bool whole; /* its rejoin in flight contains the roster */
    int terms;  /* coordinators that it has rejoined */
};

static struct {
    struct loop loop;
    struct loop_fd in;
    struct list jobs;
    uint64_t begun, found; /* clock: the start; when an agent first found another coordinator */
    int n, joined, trains, back, terms;
    bool ranks;
    long sent, answers, failures;
    struct one *list;
} crowd;

static void poll_events(struct one *o);
static void rejoin(struct one *o);
static void rejoin_short(struct one *o);

static void say(const char *what, int n, uint64_t since)
{
    printf("%s %d %llu\n", what, n, (unsigned long long)((clock_ns() - since) / CLOCK_MS));
}

static void on_retry(void *arg)
{
    struct one *o = arg;
    o->again(o);
}

static void later(struct one *o, void (*again)(struct one *o))
{
    o->again = again;
    loop_timer_start(&crowd.loop, &o->retry, RETRY_MS, on_retry, o);
}

/* Takes over body. NULL: GET. */
static void ask(struct one *o, const char *path, char *body, client_done_f *done)
{
    crowd.sent++;
    if (client_send(o->client, path, body, TIMEOUT_MS, done, o, NULL) < 0)
        abort();
    free(body);
}

/* Handles what the responses to all requests have in common. True: it is a 2xx. Otherwise the
 * request is repeated, or the agent rejoins, or gives up. */
static bool well(struct one *o, const struct client_answer *answer, void (*again)(struct one *o))
{
    bool fine = answer->status == 200 || answer->status == 204;
    crowd.answers += fine;
    if (fine)
        return true;
    if (answer->status == 0 || answer->status == 503) {
        later(o, again);
    } else if (answer->status == 404 && o->joined && again != rejoin) {
        bool has = o->epoch > 0 && rejoin_read_have(answer->body, answer->len) >= o->epoch;
        if (has)
            rejoin_short(o);
        else
            rejoin(o);
    } else {
        crowd.failures++;
        o->gone = true;
        printf("refused %ld %.200s\n", answer->status, answer->body);
    }
    return false;
}

/* ---- a rank begins to train ----------------------------------------------------------------- */

static void ask_roster(struct one *o);

static struct roster_body *world_of(struct one *o, const struct client_answer *answer)
{
    struct roster_body *world = &o->job->world;
    struct err err = {0};
    const char *at = strstr(answer->body, "\"epoch\":");
    uint32_t epoch = at ? (uint32_t)strtoul(at + 8, NULL, 10) : 0;
    if (epoch == world->epoch)
        return world; /* as an agent of this job has read it */
    roster_body_fini(world);
    if (roster_read(answer->body, answer->len, world, &err) < 0) {
        fprintf(stderr, "agents_try: %s\n", err_text(&err));
        abort();
    }
    return world;
}

static void on_roster(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    if (!well(o, answer, ask_roster))
        return;
    if (answer->status == 204) {
        ask_roster(o);
        return;
    }
    crowd.trains += o->epoch == 0;
    o->epoch = world_of(o, answer)->epoch;
    if (crowd.trains == crowd.n)
        say("trains", crowd.n, crowd.begun);
    poll_events(o);
}

static void ask_roster(struct one *o)
{
    char path[256];
    snprintf(path, sizeof(path), "/v1/roster?agent=%s&after=%u&wait=2", o->uid, o->epoch);
    ask(o, path, NULL, on_roster);
}

static void send_card(struct one *o);

static void on_card(void *arg, const struct client_answer *answer)
{
    if (well(arg, answer, send_card))
        ask_roster(arg);
}

static void send_card(struct one *o)
{
    struct card card = {.member = o->member, .why = CARD_JOIN};
    struct cards_body body = {.seq = 2, .epoch = 1, .n = 1, .cards = &card};
    snprintf(body.agent, sizeof(body.agent), "%s", o->uid);
    for (int i = 0; i < CARD_BYTES; i++)
        buf_put_u8(&card.bytes, (uint8_t)randombytes_uniform(256));
    char *text = cards_write(&body);
    buf_fini(&card.bytes);
    ask(o, "/v1/cards", text, on_card);
}

static void send_started(struct one *o);

static void on_started(void *arg, const struct client_answer *answer)
{
    if (well(arg, answer, send_started))
        send_card(arg);
}

static void send_started(struct one *o)
{
    struct report_item item = {.type = REPORT_STARTED, .member = o->member, .pid = 100};
    struct report_body body = {.seq = 1, .n = 1, .items = &item};
    snprintf(body.agent, sizeof(body.agent), "%s", o->uid);
    ask(o, "/v1/report", report_write(&body), on_started);
}

/* ---- events --------------------------------------------------------------------------------- */

/* True: the agent's rank is to start. */
static bool take_note(struct one *o, const struct note *note)
{
    if (note->type == NOTE_START && o->member < 0) {
        o->member = note->member;
        return crowd.ranks;
    }
    if (note->type == NOTE_START && !crowd.ranks)
        return false;
    printf("told %d member %d %s\n", (int)note->type, note->member, note->text);
    return false;
}

static void on_events(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    struct notes_body notes = {0};
    bool starts = false;
    if (!well(o, answer, poll_events))
        return;
    if (answer->status == 200 && notes_read(answer->body, answer->len, &notes, NULL) == 0)
        o->notes = notes.seq;
    for (int i = 0; i < notes.n; i++)
        starts |= take_note(o, &notes.notes[i]);
    notes_fini(&notes);
    if (starts)
        send_started(o);
    else
        poll_events(o);
}

static void poll_events(struct one *o)
{
    char path[256];
    snprintf(path, sizeof(path), "/v1/events?agent=%s&after=%llu&wait=2", o->uid,
             (unsigned long long)o->notes);
    ask(o, path, NULL, on_events);
}

/* ---- joins ---------------------------------------------------------------------------------- */

static void join(struct one *o);

static void on_joined(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    if (!well(o, answer, join))
        return;
    crowd.joined++;
    o->joined = true;
    if (crowd.joined == crowd.n)
        say("joined", crowd.n, crowd.begun);
    poll_events(o);
}

static char *join_text(struct one *o, struct rejoin *told)
{
    struct join_body body = {.slots = 1, .pid = 1, .host = "here", .version = "0", .rejoin = told};
    snprintf(body.agent, sizeof(body.agent), "%s", o->uid);
    return join_write(&body);
}

static void join(struct one *o)
{
    ask(o, "/v1/join", join_text(o, NULL), on_joined);
}

static void on_rejoined(void *arg, const struct client_answer *answer)
{
    struct one *o = arg;
    if (!well(o, answer, o->whole ? rejoin : rejoin_short))
        return;
    o->terms++;
    crowd.back += o->terms == crowd.terms + 1;
    if (crowd.back == crowd.n) {
        say("back", crowd.n, crowd.found);
        crowd.back = 0;
        crowd.terms++;
        crowd.found = 0;
    }
    poll_events(o);
}

/* What agent/agent_join.c tells. */
static void tell(struct one *o, bool whole)
{
    struct rejoin_member own = {
        .member = o->member, .pid = 100, .epoch = o->epoch, .hello = o->epoch > 0};
    struct rejoin told = {.n = o->member >= 0 && crowd.ranks, .members = &own};
    if (!crowd.found)
        crowd.found = clock_ns();
    if (o->epoch && whole)
        told.world = o->job->world; /* lent */
    told.world.epoch = o->epoch;
    told.known = o->epoch && o->job->world.n > o->member ? o->job->world.n : o->member + 1;
    o->notes = 0;
    o->whole = whole;
    ask(o, "/v1/join", join_text(o, &told), on_rejoined);
}

static void rejoin(struct one *o)
{
    tell(o, true);
}

static void rejoin_short(struct one *o)
{
    tell(o, false);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct job *job_of(const char *uid)
{
    list_for_each(pos, tmp, &crowd.jobs)
    {
        struct job *j = list_entry(pos, struct job, node);
        if (strcmp(j->uid, uid) == 0)
            return j;
    }
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        abort();
    snprintf(j->uid, sizeof(j->uid), "%s", uid);
    list_append(&crowd.jobs, &j->node);
    return j;
}

static void start(struct one *o, char *line, char **argv, const char *ca)
{
    char url[512], *rest, *job = strtok_r(line, " ", &rest), *pod = strtok_r(NULL, " ", &rest),
                          *token = strtok_r(NULL, " ", &rest);
    struct err err = {0};
    if (!token) {
        fprintf(stderr, "agents_try: want lines of JOB POD TOKEN\n");
        exit(2);
    }
    *o = (struct one){.job = job_of(job), .member = -1};
    snprintf(url, sizeof(url), "%s/jobs/%s/pods/%s", argv[1], job, pod);
    snprintf(o->uid, sizeof(o->uid), "%.100s.1", pod);
    struct client_config config = {
        .loop = &crowd.loop, .url = url, .ca_pem = ca, .token = token, .jitter_ms = atoi(argv[4])};
    if (client_open(&o->client, &config, &err) < 0) {
        fprintf(stderr, "agents_try: %s\n", err_text(&err));
        exit(1);
    }
    join(o);
}

static void start_all(char *text, char **argv, const char *ca)
{
    char *rest, *line;
    for (const char *c = text; *c; c++)
        crowd.n += *c == '\n';
    crowd.list = calloc((size_t)crowd.n + 1, sizeof(*crowd.list));
    int i = 0;
    for (line = strtok_r(text, "\n", &rest); crowd.list && line && i < crowd.n;
         line = strtok_r(NULL, "\n", &rest))
        start(&crowd.list[i++], line, argv, ca);
}

static void on_input(void *arg, uint32_t events)
{
    char byte;
    (void)arg, (void)events;
    if (read(STDIN_FILENO, &byte, 1) <= 0)
        loop_stop(&crowd.loop);
}

static void close_all(void)
{
    for (int i = 0; i < crowd.n; i++)
        client_close(crowd.list[i].client);
    list_for_each(pos, tmp, &crowd.jobs)
    {
        struct job *j = list_entry(pos, struct job, node);
        roster_body_fini(&j->world);
        free(j);
    }
    free(crowd.list);
}

int main(int argc, char **argv)
{
    auto_free char *ca = NULL, *text = NULL;
    struct rlimit limit;
    list_init(&crowd.jobs);
    if (argc != 6 || sodium_init() < 0 || fd_read_file(argv[2], 65536, &ca, NULL) < 0 ||
        fd_read_file(argv[3], 16 << 20, &text, NULL) < 0 || loop_init(&crowd.loop) < 0)
        return 2;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    setlinebuf(stdout);
    crowd.ranks = atoi(argv[5]) > 0;
    crowd.begun = clock_ns();
    start_all(text, argv, ca);
    if (loop_fd_start(&crowd.loop, &crowd.in, STDIN_FILENO, EPOLLIN, on_input, NULL) < 0)
        return 1;
    loop_run(&crowd.loop);
    printf("answers %ld failures %ld requests %ld\n", crowd.answers, crowd.failures, crowd.sent);
    close_all();
    return crowd.failures > 0;
}
