/* SPDX-License-Identifier: Apache-2.0
 *
 * status: see status.h.
 */
#include "agent/status.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "agent/table.h"
#include "core/base/memory.h"
#include "core/member/roster.h"

#define BROKEN_MAX   1024 /* broken sets that are stored, and printed */
#define BROKEN_SHOWN 8
#define LINES_MAX    32 /* if there are more members, they are listed by host: one screen */

/* ---- reading -------------------------------------------------------------------------------- */

/* Gets a text, without control characters, for a terminal; "" if absent. */
static void get_text(const json_t *j, const char *key, char *dst, size_t size)
{
    const char *text = json_string_value(json_object_get(j, key));
    snprintf(dst, size, "%s", text ? text : "");
    for (char *p = dst; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = '?';
}

static double get_number(const json_t *j, const char *key, double otherwise)
{
    const json_t *value = json_object_get(j, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static int64_t get_count(const json_t *j, const char *key, int64_t otherwise)
{
    double n = get_number(j, key, (double)otherwise);
    return n >= -1 && n < 9e15 ? (int64_t)n : otherwise;
}

static int get_int(const json_t *j, const char *key, int otherwise)
{
    int64_t n = get_count(j, key, otherwise);
    return n <= INT32_MAX ? (int)n : otherwise;
}

static bool is_over(const struct status_member *m)
{
    return strcmp(m->state, "failed") == 0 || strcmp(m->state, "finished") == 0;
}

static void read_member(const json_t *j, int index, struct status_member *m)
{
    m->rank = get_int(j, "rank", -1);
    m->place = get_int(j, "place", -1);
    m->member = get_int(j, "member", m->rank < 0 ? index : m->rank);
    get_text(j, "host", m->host, sizeof(m->host));
    get_text(j, "state", m->state, sizeof(m->state));
    if (json_is_true(json_object_get(j, "leaving")) && !is_over(m))
        snprintf(m->state, sizeof(m->state), "leaving");
    m->pid = get_int(j, "pid", 0);
    m->batches = get_count(j, "batches", 0);
    m->idle_ms = get_count(j, "idle_ms", -1);
    m->sets = get_count(j, "sets", 0);
    m->descriptors = get_count(j, "descriptors", 0);
    m->descriptors_max = get_count(j, "descriptors_max", 0);
    m->segments = get_count(j, "segments", 0);
    m->memory_left = get_count(j, "memory_left", 0);
    m->memory_limit = get_count(j, "memory_limit", 0);
    m->communicators = get_count(j, "communicators", 0);
    m->gpu_memory_left = get_count(j, "gpu_memory_left", 0);
    m->gpu_memory = get_count(j, "gpu_memory", 0);
    m->broken = get_count(j, "broken", 0);
}

/* Each of its ranks reports a broken set. The first report is taken. */
static int add_broken(const json_t *j, struct status *s, struct err *err)
{
    int64_t number = get_count(j, "set", 0);
    int at = 0;
    while (at < s->nbroken && s->broken[at].number < number)
        at++;
    if ((at < s->nbroken && s->broken[at].number == number) || s->nbroken == BROKEN_MAX)
        return 0;
    struct status_set *grown = realloc(s->broken, ((size_t)s->nbroken + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for %d sets", s->nbroken + 1);
    s->broken = grown;
    memmove(&grown[at + 1], &grown[at], (size_t)(s->nbroken++ - at) * sizeof(*grown));
    grown[at] = (struct status_set){.number = number, .since = get_count(j, "since", 0)};
    get_text(j, "text", grown[at].text, sizeof(grown[at].text));
    return 0;
}

static int read_broken(const json_t *member, struct status *s, struct err *err)
{
    const json_t *list = json_object_get(member, "broken_sets");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
        rc = add_broken(json_array_get(list, i), s, err);
    return rc;
}

static int read_members(const json_t *j, struct status *s, struct err *err)
{
    const json_t *list = json_object_get(j, "members");
    list = json_is_array(list) ? list : json_object_get(j, "ranks");
    if (!json_is_array(list))
        return err_set(err, EINVAL, "the status of a job: want members");
    size_t n = json_array_size(list);
    if (n > 16 * MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "the status of a job: %zu members", n);
    s->members = calloc(n + 1, sizeof(*s->members));
    if (!s->members)
        return err_set(err, ENOMEM, "no memory for %zu members", n);
    s->n = (int)n;
    int rc = 0;
    for (int i = 0; rc == 0 && i < s->n; i++) {
        const json_t *member = json_array_get(list, (size_t)i);
        read_member(member, i, &s->members[i]);
        if (!is_over(&s->members[i]))
            rc = read_broken(member, s, err);
    }
    return rc;
}

/* Renames the states of joiners while others train. */
static void name_arrival(struct status_member *m)
{
    if (m->rank >= 0)
        return;
    if (strcmp(m->state, "ready") == 0)
        snprintf(m->state, sizeof(m->state), "ready to enter");
    else if (strcmp(m->state, "running") == 0 || strcmp(m->state, "arrived") == 0)
        snprintf(m->state, sizeof(m->state), "starting");
}

int status_read(const json_t *j, struct status *ret, struct err *err)
{
    struct status s = {.size = get_int(j, "size", 0), .epoch = get_count(j, "epoch", 0)};
    const json_t *last = json_object_get(j, "last_change"),
                 *rate = json_object_get(j, "throughput"),
                 *repair = json_object_get(j, "repair_ms");
    if (!json_is_string(json_object_get(j, "job")))
        return err_set(err, EINVAL, "the status of a job: want its name");
    get_text(j, "job", s.job, sizeof(s.job));
    get_text(j, "state", s.state, sizeof(s.state));
    get_text(j, "waiting_for", s.waiting_for, sizeof(s.waiting_for));
    s.np = get_int(j, "np", s.size);
    s.min_np = get_int(j, "min_np", 0);
    s.max_np = get_int(j, "max_np", 0);
    s.elastic = json_is_true(json_object_get(j, "elastic"));
    s.change = get_count(j, "change", 0);
    s.asked = get_count(j, "asked_change", s.change);
    s.restarts = get_count(j, "restarts", 0);
    get_text(last, "cause", s.cause, sizeof(s.cause));
    s.changed = get_count(last, "unix_ms", 0);
    s.change_ms = get_number(last, "ms", 0);
    s.repair_last_ms = get_number(repair, "last", 0);
    s.repair_max_ms = get_number(repair, "max", 0);
    s.batches_per_s = get_number(rate, "batches_per_s", -1);
    s.bytes_per_s = get_number(rate, "bytes_per_s", -1);
    s.findings = (int)json_array_size(json_object_get(j, "findings"));
    int rc = read_members(j, &s, err);
    if (rc < 0) {
        status_fini(&s);
        return rc;
    }
    for (int i = 0; i < s.n && s.elastic && s.epoch > 0; i++)
        name_arrival(&s.members[i]);
    if (!s.state[0])
        snprintf(s.state, sizeof(s.state), "%s", s.epoch ? "running" : "starting");
    *ret = s;
    return 0;
}

void status_fini(struct status *s)
{
    free(s->members);
    free(s->broken);
    *s = (struct status){0};
}

int status_running(const struct status *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += !is_over(&s->members[i]) && s->members[i].pid > 0;
    return n;
}

/* ---- printing ------------------------------------------------------------------------------- */

const char *status_duration(int64_t ms, char *dst, size_t size)
{
    long long s = ms > 0 ? ms / 1000 : 0;
    if (ms < 1000)
        snprintf(dst, size, "%lld ms", (long long)(ms > 0 ? ms : 0));
    else if (s < 120)
        snprintf(dst, size, "%lld s", s);
    else if (s < 2 * 3600)
        snprintf(dst, size, "%lld min", s / 60);
    else if (s < 48 * 3600)
        snprintf(dst, size, "%lld h %lld min", s / 3600, s / 60 % 60);
    else
        snprintf(dst, size, "%lld d %lld h", s / 86400, s / 3600 % 24);
    return dst;
}

static const char *text_of(double bytes, char *dst, size_t size)
{
    return memory_text(bytes > 0 && bytes < 9e18 ? (uint64_t)bytes : 0, dst, size);
}

static void print_head(const struct status *s, const char *name, int64_t started, int64_t now,
                       FILE *out)
{
    char up[48];
    fprintf(out, "%s: %s, ", name, s->state);
    if (s->epoch == 0)
        fprintf(out, "no rank is in a world yet, %d started", status_running(s));
    else if (s->elastic)
        fprintf(out, "%d of %d ranks (%d to %d)", s->size, s->np, s->min_np, s->max_np);
    else
        fprintf(out, "%d rank%s", s->size, s->size == 1 ? "" : "s");
    fprintf(out, ", epoch %lld, up %s\n", (long long)roster_epoch_number((uint32_t)s->epoch),
            status_duration(now - started, up, sizeof(up)));
    if (s->waiting_for[0])
        fprintf(out, "  waiting for   %s\n", s->waiting_for);
}

/* The host whose ranks in sets have the least memory left, and the shared memory of these ranks. */
static void print_memory(const struct status *s, FILE *out)
{
    char shared[24], left[24], limit[24];
    const struct status_member *least = NULL;
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++) {
        const struct status_member *m = &s->members[i];
        if (m->sets > 0 && m->memory_limit > 0 && !is_over(m) &&
            (!least || m->memory_left < least->memory_left))
            least = m;
    }
    for (int i = 0; least && i < s->n; i++)
        if (!is_over(&s->members[i]) && strcmp(s->members[i].host, least->host) == 0)
            sum += s->members[i].segments;
    if (least)
        fprintf(out, "  memory        shared segments on %s take %s; %s of %s are left there\n",
                least->host, text_of((double)sum, shared, sizeof(shared)),
                text_of((double)least->memory_left, left, sizeof(left)),
                text_of((double)least->memory_limit, limit, sizeof(limit)));
}

/* Whether a member's communicators are nearer to their limit than those of the other one: it has
 * less free memory of its GPU. A member whose memory is known comes first; if neither is known, the
 * one with more communicators does. */
static bool is_nearer(const struct status_member *m, const struct status_member *other)
{
    bool known = m->gpu_memory > 0, known_too = other->gpu_memory > 0;
    if (known && known_too)
        return m->gpu_memory_left < other->gpu_memory_left;
    return known != known_too ? known : m->communicators > other->communicators;
}

/* The communicators of the rank whose GPU has the least memory left. */
static void print_communicators(const struct status *s, FILE *out)
{
    char left[24], all[24];
    const struct status_member *near = NULL;
    for (int i = 0; i < s->n; i++) {
        const struct status_member *m = &s->members[i];
        if (m->sets > 0 && m->communicators > 0 && !is_over(m) && (!near || is_nearer(m, near)))
            near = m;
    }
    if (!near)
        return;
    fprintf(out, "  communicators rank %d has %lld of NCCL's", near->rank,
            (long long)near->communicators);
    if (near->gpu_memory > 0)
        fprintf(out, "; %s of %s were left on its GPU",
                text_of((double)near->gpu_memory_left, left, sizeof(left)),
                text_of((double)near->gpu_memory, all, sizeof(all)));
    fputc('\n', out);
}

/* How many sets a rank is in at most, and the rank that is nearest to its limit of descriptors. */
static void print_sets(const struct status *s, FILE *out)
{
    const struct status_member *most = NULL, *near = NULL;
    for (int i = 0; i < s->n; i++) {
        const struct status_member *m = &s->members[i];
        if (m->sets <= 0 || is_over(m))
            continue;
        if (!most || m->sets > most->sets)
            most = m;
        if (m->descriptors_max > 0 &&
            (!near || (double)m->descriptors * (double)near->descriptors_max >
                          (double)near->descriptors * (double)m->descriptors_max))
            near = m;
    }
    if (!most)
        return;
    fprintf(out, "  sets          rank %d is in %lld", most->rank, (long long)most->sets);
    if (near)
        fprintf(out, "; rank %d has %lld of at most %lld descriptors", near->rank,
                (long long)near->descriptors, (long long)near->descriptors_max);
    fputc('\n', out);
    print_memory(s, out);
    print_communicators(s, out);
}

/* Each broken set, until its ranks remove it. */
static void print_broken(const struct status *s, int64_t now, FILE *out)
{
    char ago[48];
    for (int i = 0; i < s->nbroken && i < BROKEN_SHOWN; i++)
        fprintf(out,
                "  broken set    %s, %s ago: all its operations fail until the "
                "lost ranks are replaced, or it is removed\n",
                s->broken[i].text, status_duration(now - s->broken[i].since, ago, sizeof(ago)));
    if (s->nbroken > BROKEN_SHOWN)
        fprintf(out, "                and %d more broken sets\n", s->nbroken - BROKEN_SHOWN);
}

static void print_changes(const struct status *s, int64_t now, FILE *out)
{
    char ago[48], rate[24];
    if (s->asked > s->change)
        fprintf(out, "  asked for     change %lld; %lld is in effect\n", (long long)s->asked,
                (long long)s->change);
    if (s->cause[0])
        fprintf(out, "  last change   %s ago, in %.1f ms: %s\n",
                status_duration(now - s->changed, ago, sizeof(ago)), s->change_ms, s->cause);
    else if (s->elastic)
        fprintf(out, "  last change   none\n");
    if (s->repair_max_ms > 0)
        fprintf(out, "  recovery      last %.1f ms, longest %.1f ms\n", s->repair_last_ms,
                s->repair_max_ms);
    else if (s->elastic)
        fprintf(out, "  recovery      none was needed\n");
    if (s->restarts > 0)
        fprintf(out, "  replaced      %lld rank%s\n", (long long)s->restarts,
                s->restarts == 1 ? "" : "s");
    if (s->batches_per_s >= 0) {
        fprintf(out, "  throughput    %.1f batches/s, ", s->batches_per_s);
        fprintf(out, "%s/s\n", text_of(s->bytes_per_s, rate, sizeof(rate)));
    }
    print_sets(s, out);
    print_broken(s, now, out);
    if (s->findings > 0)
        fprintf(out, "  the doctor    has %d finding%s: run hvd-doctor on the hosts to see all\n",
                s->findings, s->findings == 1 ? "" : "s");
}

static void add_number(struct table *t, int number, int least)
{
    if (number < least)
        table_add(t, "-");
    else
        table_add(t, "%d", number);
}

static bool has_places(const struct status *s)
{
    bool any = false;
    for (int i = 0; i < s->n; i++)
        any |= s->members[i].place >= 0;
    return any;
}

static void add_member(struct table *t, const struct status_member *m, bool places)
{
    char idle[48];
    add_number(t, m->rank, 0);
    if (places)
        add_number(t, m->place, 0);
    table_add(t, "%d", m->member);
    table_add(t, "%s", m->host);
    add_number(t, m->pid, 1);
    table_add(t, "%lld", (long long)m->batches);
    table_add(t, "%s",
              m->batches > 0 && m->idle_ms >= 0 ? status_duration(m->idle_ms, idle, sizeof(idle))
                                                : "-");
    if (m->broken > 0 && !is_over(m))
        table_add(t, "%s, %lld broken set%s", m->state, (long long)m->broken,
                  m->broken == 1 ? "" : "s");
    else
        table_add(t, "%s", m->state);
}

/* Order: members of the epoch by rank, then the others by member number. */
static int by_rank(const void *a, const void *b)
{
    const struct status_member *x = a, *y = b;
    unsigned rx = (unsigned)x->rank, ry = (unsigned)y->rank; /* -1 becomes the largest */
    if (rx != ry)
        return rx < ry ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

static int by_host(const void *a, const void *b)
{
    const struct status_member *x = a, *y = b;
    int hosts = strcmp(x->host, y->host);
    return hosts ? hosts : strcmp(x->state, y->state);
}

/* Adds a row for each host: how many members are in which state. */
static void add_hosts(struct table *t, const struct status_member *list, int n)
{
    for (int i = 0; i < n;) {
        char states[256] = "";
        int from = i, same;
        size_t len = 0;
        for (; i < n && strcmp(list[i].host, list[from].host) == 0; i += same) {
            for (same = 1; i + same < n && by_host(&list[i], &list[i + same]) == 0; same++)
                continue;
            if (len < sizeof(states))
                len += (size_t)snprintf(states + len, sizeof(states) - len, "%s%d %s",
                                        len ? ", " : "", same, list[i].state);
        }
        table_add(t, "%s", list[from].host);
        table_add(t, "%d", i - from);
        table_add(t, "%s", states);
    }
}

int status_print(const struct status *s, const char *name, int64_t started, int64_t now, bool all,
                 FILE *out)
{
    struct table t;
    int shown = 0;
    bool many, places = has_places(s);
    struct status_member *list = calloc((size_t)s->n + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (int i = 0; i < s->n; i++) /* hides members that have ended: an elastic job may have many */
        if (all || !s->elastic || !is_over(&s->members[i]))
            list[shown++] = s->members[i];
    many = shown > LINES_MAX && !all;
    qsort(list, (size_t)shown, sizeof(*list), many ? by_host : by_rank);
    table_init(&t, many     ? "HOST|>RANKS|STATES"
                   : places ? ">RANK|>PLACE|>MEMBER|HOST|>PID|>BATCHES|>LAST BATCH|STATE"
                            : ">RANK|>MEMBER|HOST|>PID|>BATCHES|>LAST BATCH|STATE");
    if (many)
        add_hosts(&t, list, shown);
    for (int i = 0; i < shown && !many; i++)
        add_member(&t, &list[i], places);
    print_head(s, name, started, now, out);
    print_changes(s, now, out);
    fputc('\n', out);
    int rc = table_print(&t, out);
    if (rc == 0 && shown < s->n)
        fprintf(out, "(and %d that ended a short while ago: -v)\n", s->n - shown);
    table_fini(&t);
    free(list);
    return rc;
}
