/* SPDX-License-Identifier: Apache-2.0
 *
 * stall: the stall inspector: names missing ranks and what they wait in. When a tensor has waited
 * too long for some rank, or batches make no progress, the root asks all ranks (DOWN_STATUS): which
 * of these tensors have you submitted, and what do your callers wait in? Answers are collected on
 * their way up the tree; ranks that do not answer in time are named in the report, too. If only a
 * lower node knows of a stalled tensor (a host waits for one of its own ranks), the node sends the
 * root a hint.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include "core/negotiate/stall.h"

#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/negotiate/log_record.h"
#include "core/negotiate/negotiate_impl.h"
#include "core/negotiate/signature.h"

int stall_init(struct negotiate *n)
{
    struct stall *s = &n->stall;
    s->due = UINT64_MAX;
    int rc = rankset_init(&s->answered, n->config.size);
    if (rc == 0)
        rc = rankset_init(&s->scratch, n->config.size);
    for (int i = 0; i < STALL_ITEMS && rc == 0; i++)
        rc = rankset_init(&s->items[i].have, n->config.size);
    return rc;
}

void stall_fini(struct negotiate *n)
{
    struct stall *s = &n->stall;
    rankset_fini(&s->answered);
    rankset_fini(&s->scratch);
    for (int i = 0; i < STALL_ITEMS; i++)
        rankset_fini(&s->items[i].have);
    buf_fini(&s->ranks);
}

void stall_heard(struct negotiate *n, const struct tensor *e)
{
    if (n->config.stall_ns && e->since + n->config.stall_ns < n->stall.due)
        n->stall.due = e->since + n->config.stall_ns;
}

/* The kind of operation that was requested under the name, as far as this node knows. */
static uint8_t kind_of(const struct tensor *e)
{
    return e->state != TENSOR_IDLE ? (uint8_t)signature_asked(&e->want)
           : e->id                 ? (uint8_t)signature_asked(&e->cached)
           : e->claims             ? (uint8_t)signature_asked(&e->claims->common)
                                   : HVD_ALLREDUCE;
}

static struct stall_item *find_item(struct stall_item *items, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i];
    return NULL;
}

enum item_is { WAITING, OWED, RUNNING };

static bool add_item(struct negotiate *n, const char *name, uint8_t kind, uint64_t age,
                     enum item_is is)
{
    struct stall *s = &n->stall;
    struct stall_item *it = find_item(s->items, s->nitems, name);
    if (it && is != OWED)
        return true;
    if (!it && s->nitems == STALL_ITEMS)
        return false;
    if (!it)
        it = &s->items[s->nitems++];
    snprintf(it->name, sizeof(it->name), "%s", name);
    it->kind = kind;
    it->age = age;
    it->running = is == RUNNING;
    it->owed = is == OWED;
    rankset_clear(&it->have);
    return true;
}

/* ---- hints --------------------------------------------------------------------------------- */

/* Keeps a hint on the root; the oldest is replaced. */
static void keep_hint(struct negotiate *n, const struct stall_hint *hint)
{
    struct stall *s = &n->stall;
    const struct tensor *e = tensors_find(&n->table, hint->name);
    if (e && e->since && !hint->owed)
        return; /* the root measures the time of tensors that it knows itself */
    struct stall_hint *place = &s->hints[0];
    for (int i = 0; i < STALL_ITEMS; i++) {
        if (strcmp(s->hints[i].name, hint->name) == 0) {
            place = &s->hints[i];
            break;
        }
        if (s->hints[i].told < place->told)
            place = &s->hints[i];
    }
    uint64_t told = strcmp(place->name, hint->name) == 0 ? place->told : 0;
    *place = *hint;
    place->told = told;
    place->fresh = true;
}

static void send_hint(struct negotiate *n, uint8_t kind, bool owed, uint64_t age, const char *name)
{
    negotiate_begin(n, &n->up, UP_STALLED);
    buf_put_u8(&n->up, kind);
    buf_put_u8(&n->up, owed);
    buf_put_u64(&n->up, age);
    buf_put_str(&n->up, name);
    n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
}

/* u8 kind, u8 owed, u64 age, str name */
int stall_recv_hint(struct negotiate *n, struct reader *r)
{
    struct stall_hint hint = {0};
    hint.kind = reader_u8(r);
    hint.owed = reader_u8(r);
    hint.age = reader_u64(r);
    reader_str(r, hint.name, sizeof(hint.name));
    if (!reader_ok(r) || !hint.name[0] || hint.kind >= HVD_KINDS)
        return -EPROTO;
    if (n->root) {
        keep_hint(n, &hint);
        return 0;
    }
    send_hint(n, hint.kind, hint.owed, hint.age, hint.name);
    return 0;
}

/* ---- the root's inquiry -------------------------------------------------------------------- */

static void say_ranks(struct negotiate *n, const struct rankset *missing, char *text, size_t size)
{
    struct stall *s = &n->stall;
    size_t len = strlen(text), told = 0;
    int total = rankset_count(missing);
    for (int rank = rankset_next(missing, 0); rank >= 0 && told < 4 && len < size;
         rank = rank + 1 < n->config.size ? rankset_next(missing, rank + 1) : -1) {
        char wait[STALL_TEXT] = "";
        uint64_t quiet = 0;
        struct reader r = reader_over(s->ranks.data, s->ranks.len);
        while (r.pos < r.len && !r.failed) {
            uint32_t who = reader_u32(&r);
            quiet = reader_u64(&r);
            reader_str(&r, wait, sizeof(wait));
            if (who == (uint32_t)rank)
                break;
        }
        int k, name = rank_name(n->config.names, rank);
        const char *sep = told++ ? "; " : " (";
        if (!rankset_has(&s->answered, rank))
            k = snprintf(text + len, size - len, "%srank %d does not answer", sep, name);
        else if (wait[0])
            k = snprintf(text + len, size - len, "%srank %d waits in %s", sep, name, wait);
        else
            k = snprintf(text + len, size - len, "%srank %d has not called anything for %llu s",
                         sep, name, (unsigned long long)(quiet / CLOCK_S));
        len += k > 0 ? (size_t)k : 0;
    }
    if (told && len < size)
        snprintf(text + len, size - len, "%s", (size_t)total > told ? "; ...)" : ")");
}

/* A tensor of the oldest batch that is not finished, NULL: there is none. */
static const struct tensor *oldest(const struct negotiate *n)
{
    const struct running_batch *b = running_get(&n->running, n->running.first);
    return b ? running_tensor(&n->running, b, 0) : NULL;
}

/* Whether the oldest batch is on GPUs, where it can hang although every rank answers. */
static bool runs_on_gpus(const struct negotiate *n)
{
    const struct tensor *e = oldest(n);
    return e && e->want.device >= 0;
}

/* Writes the finding about an item; false: it is not stalled any more. */
static bool find_text(struct negotiate *n, const struct stall_item *it, char *text, size_t size)
{
    struct rankset *missing = &n->stall.scratch;
    rankset_clear(missing);
    for (int i = 0; i < n->config.size; i++)
        rankset_add(missing, i);
    rankset_subtract(missing, &it->have);
    int count = rankset_count(missing);
    char ranks[200];
    rankset_text(missing, n->config.names, ranks, sizeof(ranks));
    unsigned long long seconds = it->age / CLOCK_S;
    if (it->running && !it->name[0])
        snprintf(text, size, "the frozen schedule has made no progress for %llu s: ", seconds);
    else
        snprintf(text, size, "%s '%s' has %s %llu s: ", hvd_kind_name((enum hvd_kind)it->kind),
                 it->name, it->running ? "run for" : "waited", seconds);
    size_t len = strlen(text);
    if (count == 0) {
        snprintf(text + len, size - len, "every rank answers%s",
                 it->running && runs_on_gpus(n) ? "; it is on the GPUs" : "");
        return it->running;
    }
    snprintf(text + len, size - len, "missing rank%s %s", count == 1 ? "" : "s", ranks);
    say_ranks(n, missing, text, size);
    return true;
}

void stall_say(struct negotiate *n, const char *text)
{
    negotiate_begin(n, &n->down, DOWN_STALL);
    buf_put_str(&n->down, text);
    if (!n->down.failed)
        negotiate_send_down(n, &n->down);
    buf_reset(&n->down);
    n->stats.stalls++;
    n->ops.stalled(n->ctx, text);
}

void negotiate_say(struct negotiate *n, const char *text)
{
    stall_say(n, text);
}

int stall_follow_stall(struct negotiate *n, struct reader *r)
{
    char text[1024];
    reader_str(r, text, sizeof(text));
    if (!reader_ok(r))
        return -EPROTO;
    n->stats.stalls++;
    n->ops.stalled(n->ctx, text);
    return 0;
}

static void lose(struct negotiate *n, int rank, int code, const char *text)
{
    struct err err;
    n->failed = err_set(&err, -code, "%s", text);
    if (n->ops.lost)
        n->ops.lost(n->ctx, rank < n->config.size ? rank : -1, &err);
}

/* u32 rank that is silent (the number of ranks: no rank is), i32 negative errno, str text */
int stall_follow_lost(struct negotiate *n, struct reader *r)
{
    char text[1024];
    uint32_t rank = reader_u32(r);
    int code = (int32_t)reader_u32(r);
    reader_str(r, text, sizeof(text));
    if (!reader_ok(r) || rank > (uint32_t)n->config.size || code >= 0 || code < -4095)
        return -EPROTO;
    lose(n, (int)rank, code, text);
    return 0;
}

void stall_end_all(struct negotiate *n, int rank, int code, const char *text)
{
    negotiate_begin(n, &n->down, DOWN_LOST);
    buf_put_u32(&n->down, (uint32_t)rank);
    buf_put_u32(&n->down, (uint32_t)code);
    buf_put_str(&n->down, text);
    if (!n->down.failed)
        negotiate_send_down(n, &n->down);
    buf_reset(&n->down);
    lose(n, rank, code, text);
}

/* Fails the tensor and its group on all ranks. Announcements of it may still be in flight: the
 * new generation that report() then begins invalidates them. */
static void give_up(struct negotiate *n, const char *name, const char *text)
{
    const struct tensor *e = tensors_find(&n->table, name);
    const struct signature *sig = !e                             ? NULL
                                  : e->state == TENSOR_SUBMITTED ? &e->want
                                  : e->id                        ? &e->cached
                                  : e->claims                    ? &e->claims->common
                                                                 : NULL;
    struct signature group = sig ? *sig : (struct signature){0};
    decide_fail(n, name, -ETIMEDOUT, text);
    for (uint32_t i = 0; group.group_size && i < n->table.npool; i++) {
        const struct tensor *m = n->table.pool[i];
        if (m && m != e && m->state == TENSOR_SUBMITTED && m->want.group_hash == group.group_hash &&
            m->want.group_size == group.group_size)
            decide_fail(n, m->name, -ETIMEDOUT, text);
    }
}

/* The batch of the item makes no progress. Every operation fails if a rank is silent that the batch
 * needs, or if it can hang although every rank answers. */
static void end_running(struct negotiate *n, const struct stall_item *it, const char *text)
{
    const struct stall *s = &n->stall;
    int silent = 0;
    while (silent < n->config.size && rankset_has(&s->answered, silent))
        silent++;
    if (silent < n->config.size || it->owed || runs_on_gpus(n))
        stall_end_all(n, silent, -ETIMEDOUT, text);
}

static void report(struct negotiate *n)
{
    struct stall *s = &n->stall;
    bool gave_up = false;
    s->open = false;
    for (int i = 0; i < s->nitems; i++) {
        const struct stall_item *it = &s->items[i];
        char text[900];
        if (!find_text(n, it, text, sizeof(text)))
            continue;
        stall_say(n, text);
        if (n->config.stall_shutdown_ns == 0 || it->age < n->config.stall_shutdown_ns)
            continue;
        if (it->running || it->owed)
            end_running(n, it, text);
        if (it->running || it->owed || n->frozen)
            continue;
        give_up(n, it->name, text);
        gave_up = true;
    }
    if (gave_up)
        decide_anew(n);
}

static void inquire(struct negotiate *n)
{
    struct stall *s = &n->stall;
    negotiate_begin(n, &n->down, DOWN_STATUS);
    buf_put_u32(&n->down, s->number + 1);
    buf_put_u8(&n->down, (uint8_t)s->nitems);
    for (int i = 0; i < s->nitems; i++) {
        buf_put_u8(&n->down, s->items[i].running);
        buf_put_str(&n->down, s->items[i].name);
    }
    if (!n->down.failed) {
        negotiate_send_down(n, &n->down);
        s->number++;
        s->open = true;
        s->opened = n->now;
        s->nanswers = 0;
        for (int i = 0; i < n->nchildren; i++)
            n->children[i].status_told = false;
        status_own(n);
    }
    buf_reset(&n->down);
}

/* ---- when --------------------------------------------------------------------------------- */

/* A tensor has waited too long: adds it to the inquiry, or sends it to the root as a hint. Returns
 * false if the inquiry is full. */
static bool say_stalled(struct negotiate *n, const struct tensor *e, uint64_t age, enum item_is is)
{
    if (n->root)
        return add_item(n, e->name, kind_of(e), age, is);
    send_hint(n, kind_of(e), is == OWED, age, e->name);
    return true;
}

/* When something that has stood still since `since` is to be reported. told: last time, 0: never.
 */
static uint64_t report_at(const struct negotiate *n, uint64_t since, uint64_t told)
{
    uint64_t at = (told ? told : since) + n->config.stall_ns;
    uint64_t end = since + n->config.stall_shutdown_ns;
    return n->config.stall_shutdown_ns && end < at && told < end ? end : at;
}

static void look_at_owed(struct negotiate *n, uint64_t now, uint64_t *due)
{
    struct owed *o = &n->owed;
    const struct tensor *e = owed_missing(n);
    if (!e)
        return;
    if (now >= report_at(n, o->since, o->stall_told) && say_stalled(n, e, now - o->since, OWED))
        o->stall_told = now;
    uint64_t at = report_at(n, o->since, o->stall_told);
    *due = at < *due ? at : *due;
}

static void look_at_partial(struct negotiate *n, uint64_t now)
{
    struct stall *s = &n->stall;
    uint64_t period = n->config.stall_ns, end = n->config.stall_shutdown_ns;
    s->due = UINT64_MAX;
    if (n->end.reached) /* a rank leaves, and these fail */
        return;
    list_for_each(at, next, &n->partial)
    {
        struct tensor *e = list_entry(at, struct tensor, partial);
        uint64_t due = (e->stall_told ? e->stall_told : e->since) + period;
        if (end && e->since + end < due && e->stall_told < e->since + end)
            due = e->since + end;
        if (now >= due) {
            bool told = say_stalled(n, e, now - e->since, WAITING);
            e->stall_told = told ? now : e->stall_told;
            due = now + (told ? period : period / 8); /* not told: the inquiry is full */
            if (end && e->since + end > now && e->since + end < due)
                due = e->since + end;
        }
        s->due = due < s->due ? due : s->due;
    }
}

/* Detects that the oldest batch makes no progress, and a thaw that a rank does not answer. */
static void look_at_running(struct negotiate *n, uint64_t now, uint64_t *due)
{
    struct stall *s = &n->stall;
    uint64_t mark = n->running.first;
    bool busy = n->running.n || n->thawing;
    if (!busy || mark != s->still_mark)
        s->still_since = now;
    s->still_mark = mark;
    if (!busy || !n->root)
        return;
    uint64_t at = report_at(n, s->still_since, s->run_told > s->still_since ? s->run_told : 0);
    if (now < at) {
        *due = at < *due ? at : *due;
        return;
    }
    s->run_told = now;
    *due = now + n->config.stall_ns < *due ? now + n->config.stall_ns : *due;
    const struct tensor *e = oldest(n);
    add_item(n, e ? e->name : "", e ? (uint8_t)signature_asked(&e->want) : 0, now - s->still_since,
             RUNNING);
}

uint64_t stall_tick(struct negotiate *n, uint64_t now)
{
    struct stall *s = &n->stall;
    uint64_t due = UINT64_MAX;
    if (n->config.stall_ns == 0 || (!n->root && !n->hello_sent))
        return due;
    if (s->open) {
        /* The root waits longer for answers than other nodes, which have to send theirs on. */
        uint64_t most = 2 * CLOCK_S, eighth = n->config.stall_ns / 8;
        uint64_t patience = eighth < most ? eighth : most;
        due = s->opened + (n->root ? 2 * patience : patience);
        if (s->nanswers == n->nchildren || now >= due) {
            s->open = false;
            if (n->root)
                report(n);
            else
                status_answer(n);
            due = UINT64_MAX;
        } else if (n->root) {
            return due;
        }
    }
    if (n->root)
        s->nitems = 0;
    look_at_running(n, now, &due);
    look_at_owed(n, now, &due);
    if (now >= s->due && (n->root || !s->open))
        look_at_partial(n, now);
    for (int i = 0; i < STALL_ITEMS && n->root; i++) {
        struct stall_hint *h = &s->hints[i];
        bool due_again = !h->told || now - h->told >= n->config.stall_ns / 4 * 3;
        if (h->fresh && due_again &&
            add_item(n, h->name, h->kind, h->age, h->owed ? OWED : WAITING))
            h->told = now;
        h->fresh = false;
    }
    if (n->root && s->nitems)
        inquire(n);
    return s->due < due ? s->due : due;
}
