/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_relay: see agent_relay.h.
 */
#include "agent/agent_relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"

/* Cards are posted together: once all ranks here have said HELLO, or after this time. */
#define CARDS_WAIT_MS 20
#define WORDS_MAX     400 /* bytes of a rank's text in BYE and PROGRESS */

void agent_relay_init(struct agent_relay *relay, struct loop *loop,
                      const struct agent_config *config, struct agent_ranks *ranks,
                      struct outbox *outbox, void (*cards_posted)(void *arg), void *arg)
{
    *relay = (struct agent_relay){.loop = loop,
                                  .config = config,
                                  .ranks = ranks,
                                  .outbox = outbox,
                                  .cards_posted = cards_posted,
                                  .arg = arg};
}

void agent_relay_fini(struct agent_relay *relay)
{
    if (relay->loop)
        loop_timer_stop(relay->loop, &relay->cards_timer);
    lifelines_fini(&relay->lifelines);
    member_ends_fini(&relay->ends);
    free(relay->world);
    roster_body_fini(&relay->roster);
}

static void send_lost(struct rank *to, int lost, int code, const char *text)
{
    struct buf body = {0};
    buf_put_u32(&body, (uint32_t)lost);
    buf_put_u32(&body, (uint32_t)code);
    buf_put(&body, text, strlen(text));
    rank_send(to, CTL_LOST, &body, NULL);
    buf_fini(&body);
}

/* Must this rank be told of the end of another one? A rank in the current epoch: of a loss. In a
 * fixed job also: a rank that waits for the roster, of any end, because the roster will not come;
 * and a rank that has said BYE, of a loss, because it may wait in hvd_shutdown() for the lost
 * rank's farewell. */
static bool concerns(const struct agent_relay *relay, const struct rank *rank,
                     const struct member_end *end)
{
    bool fixed = !relay->ranks->welcome.elastic && !rank->reaped;
    bool parts = fixed && rank->hello && rank->bye;
    bool waits = fixed && rank->waiting;
    return (end->lost && (rank_in_epoch(rank) || parts)) || waits;
}

/* Returns whether the end of the member may concern ranks here. In an elastic job the end of a
 * member outside the current roster does not. */
static bool is_known(const struct agent_relay *relay, int member)
{
    for (int i = 0; i < relay->nworld; i++)
        if (relay->world[i] == member)
            return true;
    return !relay->ranks->welcome.elastic;
}

void agent_relay_record_end(struct agent_relay *relay, int member, uint32_t epoch, bool lost,
                            int code, const char *text)
{
    const struct welcome_body *welcome = &relay->ranks->welcome;
    const struct member_end *known = member_ends_get(&relay->ends, member);
    if (known && (known->epoch >= epoch || !welcome->elastic))
        return;
    if (!welcome->elastic && member >= welcome->size)
        return;
    struct member_end *end = member_ends_entry(&relay->ends, member);
    if (!end)
        return;
    *end = (struct member_end){.known = true, .lost = lost, .epoch = epoch, .code = code};
    snprintf(end->text, sizeof(end->text), "%s", text);
    for (int i = 0; i < relay->ranks->n && is_known(relay, member); i++)
        if (relay->ranks->list[i]->assignment.member != member &&
            concerns(relay, relay->ranks->list[i], end))
            send_lost(relay->ranks->list[i], member, code, end->text);
}

/* ---- HELLO, cards, ROSTER ------------------------------------------------------------------- */

static void post_cards(void *arg)
{
    struct agent_relay *relay = arg;
    struct cards_body cards = {.epoch = relay->epoch + 1};
    loop_timer_stop(relay->loop, &relay->cards_timer);
    cards.cards = calloc((size_t)relay->ranks->n, sizeof(*cards.cards));
    if (!cards.cards)
        return;
    for (int i = 0; i < relay->ranks->n; i++) {
        struct rank *r = relay->ranks->list[i];
        if (!r->waiting || r->posted)
            continue;
        cards.cards[cards.n].member = r->assignment.member;
        cards.cards[cards.n].why = r->why;
        cards.cards[cards.n].epoch = r->was_in;
        cards.cards[cards.n++].bytes = r->card; /* lent */
        r->posted = true;
    }
    if (cards.n > 0)
        outbox_cards(relay->outbox, &cards);
    free(cards.cards);
    relay->cards_posted(relay->arg);
}

void agent_relay_tell_away(struct agent_relay *relay, uint32_t ms)
{
    struct buf body = {0};
    buf_put_u32(&body, ms);
    for (int i = 0; i < relay->ranks->n; i++)
        if (relay->ranks->list[i]->waiting)
            rank_send(relay->ranks->list[i], CTL_AWAY, &body, NULL);
    buf_fini(&body);
}

/* May another rank here say HELLO soon? After a loss or at a boundary, every rank that is still in
 * the old epoch will; at the start every rank will. */
static bool more_to_come(const struct agent_relay *relay)
{
    bool repair = false, in_world = false, all = !agent_ranks_starting(relay->ranks);
    for (int i = 0; i < relay->ranks->n; i++) {
        const struct rank *r = relay->ranks->list[i];
        repair |= r->waiting && r->why != CARD_JOIN;
        in_world |= rank_in_epoch(r);
        all &= r->waiting;
    }
    return repair && relay->ranks->welcome.elastic ? in_world : !all;
}

void agent_relay_consider_cards(struct agent_relay *relay)
{
    bool any = false;
    for (int i = 0; i < relay->ranks->n; i++)
        any |= relay->ranks->list[i]->waiting && !relay->ranks->list[i]->posted;
    if (any && !more_to_come(relay))
        post_cards(relay);
}

/* In a rank that is a script, the process that called hvd_init() has ended while the script runs
 * on. The other ranks must learn of it before the script ends. Reads frames first: a BYE may be
 * unread. */
void agent_relay_hello_ended(struct agent_relay *relay, struct rank *rank)
{
    char text[256];
    rank_read_frames(rank);
    if (!rank_in_epoch(rank))
        return;
    if (relay->ranks->welcome.elastic) {
        agent_relay_declare_dead(relay, rank, false, "");
        return;
    }
    snprintf(text, sizeof(text), "rank %d on %s: its process %d ended without hvd_shutdown()",
             rank->assignment.member, relay->config->host, rank->hello_pid);
    log_warn("%s", text);
    for (int i = 0; i < relay->ranks->n; i++)
        if (relay->ranks->list[i] != rank && rank_in_epoch(relay->ranks->list[i]))
            send_lost(relay->ranks->list[i], rank->assignment.member, 0, text);
}

static void send_first_end(struct agent_relay *relay, struct rank *rank)
{
    int member;
    const struct member_end *end = member_ends_first(&relay->ends, &member);
    if (end)
        send_lost(rank, member, end->code, end->text);
}

static void on_hello(struct agent_relay *relay, struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    uint16_t version = reader_u16(&r);
    uint32_t pid = reader_u32(&r);
    uint8_t why = reader_u8(&r);
    uint32_t was_in = reader_u32(&r);
    size_t n = frame->len - r.pos;
    if (r.failed || version != CTL_VERSION || why >= CTL_WHYS || n > MEMBER_CARD_MAX) {
        log_warn("rank %d: a HELLO of version %d with a card of %zu bytes; want version %d",
                 rank->assignment.member, version, n, CTL_VERSION);
        return;
    }
    log_debug("rank %d (pid %u) says HELLO (%s)", rank->assignment.member, pid,
              card_why_name((enum card_why)why));
    buf_reset(&rank->card);
    buf_put(&rank->card, frame->body + r.pos, n);
    rank_watch_hello(rank, (int)pid);
    agent_relay_give_lifeline(relay, rank);
    if (why == CTL_JOIN) /* else its sets go on in the next epoch */
        rank->progress.sets = (struct set_report){0};
    rank->hello = rank->waiting = true;
    rank->bye = rank->posted = rank->arrived = false;
    rank->bye_status = 0;
    rank->why = (enum card_why)why;
    rank->was_in = was_in;
    if (!rank->reaped) /* if an end of the member was recorded, the member is back */
        member_ends_forget(&relay->ends, rank->assignment.member);
    if (!relay->ranks->welcome.elastic)
        send_first_end(relay, rank);
    if (!more_to_come(relay))
        post_cards(relay);
    else if (!relay->cards_timer.on)
        loop_timer_start(relay->loop, &relay->cards_timer, CARDS_WAIT_MS, post_cards, relay);
}

/* Tells the rank which members of its roster are already known to be lost: no later event
 * reports these losses again. */
static void send_losses(struct agent_relay *relay, struct rank *rank,
                        const struct roster_body *roster)
{
    for (int i = 0; i < roster->n && relay->ranks->welcome.elastic; i++) {
        int member = roster->cards[i].member;
        const struct member_end *end = member_ends_get(&relay->ends, member);
        if (end && end->lost && end->epoch >= roster->epoch)
            send_lost(rank, member, end->code, end->text);
    }
}

static void send_roster(struct agent_relay *relay, struct rank *rank,
                        const struct roster_body *roster)
{
    struct buf body = {0};
    buf_put_u32(&body, roster->epoch);
    buf_put_u32(&body, (uint32_t)rank->roster_rank);
    buf_put_u32(&body, (uint32_t)roster->n);
    buf_put(&body, roster->key, sizeof(roster->key));
    buf_put_u32(&body, roster->change);
    buf_put_u64(&body, roster->departed_done);
    for (int i = 0; i < roster->n; i++) {
        const struct card *c = &roster->cards[i];
        bool local = strcmp(c->agent, relay->config->agent) == 0;
        buf_put_u8(&body, (uint8_t)((local ? CTL_LOCAL : 0) | (c->is_new ? CTL_NEW : 0) |
                                    (roster->keep_places ? CTL_PLACE : 0)));
        buf_put_u32(&body, (uint32_t)c->member);
        if (roster->keep_places)
            buf_put_u32(&body, (uint32_t)c->place);
        buf_put_u32(&body, (uint32_t)c->bytes.len);
        buf_put(&body, c->bytes.data, c->bytes.len);
    }
    rank_send(rank, CTL_ROSTER, &body, NULL);
    explicit_bzero(body.data, body.len);
    buf_fini(&body);
}

/* The member's rank in the roster, -1: not in it. */
static int rank_in(const struct roster_body *roster, int member)
{
    for (int i = 0; i < roster->n; i++)
        if (roster->cards[i].member == member)
            return i;
    return -1;
}

static void keep_world(struct agent_relay *relay, const struct roster_body *roster)
{
    int *world = realloc(relay->world, (size_t)roster->n * sizeof(*world));
    relay->world = world ? world : relay->world;
    relay->nworld = world ? roster->n : 0;
    for (int i = 0; i < relay->nworld; i++)
        relay->world[i] = roster->cards[i].member;
}

static void send_to_waiting(struct agent_relay *relay, const struct roster_body *roster)
{
    relay->epoch = roster->epoch;
    keep_world(relay, roster);
    agent_relay_announce(relay, roster->announced);
    for (int i = 0; i < relay->ranks->n; i++) {
        struct rank *rank = relay->ranks->list[i];
        int roster_rank = rank_in(roster, rank->assignment.member);
        if (!rank->waiting || !rank->posted || roster_rank < 0)
            continue;
        rank->waiting = false;
        rank->roster_rank = roster_rank;
        rank->epoch = roster->epoch;
        if (relay->change > roster->change) /* first: the rank's next boundary may be near */
            agent_relay_send_change(relay, rank);
        send_roster(relay, rank, roster);
        send_losses(relay, rank, roster);
    }
}

void agent_relay_install(struct agent_relay *relay, struct roster_body *roster)
{
    if (roster->epoch > relay->epoch)
        send_to_waiting(relay, roster);
    if (roster->epoch > relay->roster.epoch) {
        struct roster_body old = relay->roster;
        relay->roster = *roster;
        *roster = old;
    }
    roster_body_fini(roster);
}

bool agent_relay_wants_roster(const struct agent_relay *relay)
{
    bool wants = false;
    for (int i = 0; i < relay->ranks->n; i++)
        wants |= relay->ranks->list[i]->waiting && !relay->ranks->list[i]->reaped;
    return wants;
}

/* ---- the other frames ----------------------------------------------------------------------- */

/* Returns whether the rank may send or receive a frame of this epoch: in an elastic job, sender and
 * receivers must be in that epoch. */
static bool shares(const struct agent_relay *relay, const struct rank *rank, uint32_t epoch)
{
    return !relay->ranks->welcome.elastic || (rank->roster_rank >= 0 && rank->epoch == epoch);
}

/* Passes a SHARE to the other ranks of this agent in the epoch, with the sender's rank filled in.
 * Takes ownership of the descriptors. */
static void on_share(struct agent_relay *relay, struct rank *from, struct ctl_frame *frame)
{
    struct buf body = {0};
    struct reader r = reader_over(frame->body, frame->len);
    uint32_t epoch = reader_u32(&r);
    if (frame->len < 10 || from->roster_rank < 0 || !shares(relay, from, epoch))
        return;
    buf_put_u32(&body, epoch);
    buf_put_u32(&body, (uint32_t)from->roster_rank);
    buf_put(&body, frame->body + 8, frame->len - 8);
    struct ctl_fds *fds = frame->nfds ? ctl_fds_create(frame->fds, frame->nfds) : NULL;
    if (frame->nfds && !fds)
        body.failed = true; /* makes the send to each receiver fail */
    frame->nfds = 0;
    for (int i = 0; i < relay->ranks->n; i++) {
        struct rank *to = relay->ranks->list[i];
        /* Sends the frame also to a rank that has said BYE, which waits for the others' farewells.
         */
        if (to != from && to->hello && !to->waiting && !to->reaped && shares(relay, to, epoch))
            rank_send(to, CTL_SHARE, &body, fds);
    }
    ctl_fds_drop(fds);
    buf_fini(&body);
}

static void on_bye(struct agent_relay *relay, struct rank *rank, const struct ctl_frame *frame)
{
    char name[64], text[1024];
    struct reader r = reader_over(frame->body, frame->len);
    int status = (int)reader_u32(&r);
    uint64_t done = reader_u64(&r);
    size_t n = r.failed ? 0 : frame->len - r.pos;
    struct report_item item = {
        .type = REPORT_BYE, .member = rank->assignment.member, .pid = (int)rank->pid};
    if (!rank->hello || rank->bye)
        return;
    if (r.failed || done > INT64_MAX) {
        log_warn("rank %d: its BYE is invalid", rank->assignment.member);
        return;
    }
    rank->done = item.done = done;
    item.code = status < 0 ? status : 0;
    if (relay->ranks->welcome.elastic || status != -ESHUTDOWN) { /* else it goes on: see CTL_BYE */
        rank->bye = true;
        rank->waiting = rank->arrived = false;
        rank->bye_status = item.code;
    }
    snprintf(item.text, sizeof(item.text), "%.*s", (int)(n < WORDS_MAX ? n : WORDS_MAX),
             (const char *)frame->body + r.pos);
    outbox_report(relay->outbox, &item);
    if (item.code == 0 || !relay->ranks->welcome.elastic)
        return;
    rank_name(rank, name, sizeof(name));
    snprintf(text, sizeof(text), "%s on %s (pid %d) cannot go on: %s", name, relay->config->host,
             (int)rank->pid, item.text[0] ? item.text : strerror(-item.code));
    agent_relay_record_end(relay, rank->assignment.member, END_FINAL, true, item.code, text);
    agent_relay_consider_cards(relay);
}

static void on_repaired(struct agent_relay *relay, struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    struct report_item item = {
        .type = REPORT_REPAIRED, .member = rank->assignment.member, .pid = (int)rank->pid};
    item.epoch = reader_u32(&r);
    item.ns = reader_u64(&r);
    if (!r.failed && item.ns <= INT64_MAX)
        outbox_report(relay->outbox, &item);
}

/* The rank's next report of its progress, without the progress. */
static struct report_item progress_of(const struct rank *rank)
{
    return (struct report_item){.type = REPORT_PROGRESS,
                                .member = rank->assignment.member,
                                .pid = (int)rank->pid,
                                .sets = rank->progress.sets};
}

static void on_sets(struct rank *rank, const struct ctl_frame *frame)
{
    struct report_item item = progress_of(rank);
    item.batches = rank->progress.batches;
    item.bytes = rank->progress.bytes;
    if (set_report_take(frame->body, frame->len, &item.sets) < 0)
        return;
    rank->progress = item;
    rank->progress_new = true;
}

static void on_progress(struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    struct report_item item = progress_of(rank);
    item.batches = reader_u64(&r);
    item.bytes = reader_u64(&r);
    reader_u8(&r);
    size_t n = r.failed ? 0 : frame->len - r.pos;
    if (r.failed || item.batches > INT64_MAX || item.bytes > INT64_MAX)
        return;
    snprintf(item.text, sizeof(item.text), "%.*s", (int)(n < WORDS_MAX ? n : WORDS_MAX),
             (const char *)frame->body + r.pos);
    rank->progress = item;
    rank->progress_new = true;
}

void agent_relay_frame(struct agent_relay *relay, struct rank *rank, struct ctl_frame *frame)
{
    switch (frame->type) {
    case CTL_HELLO:
        on_hello(relay, rank, frame);
        break;
    case CTL_SHARE:
        on_share(relay, rank, frame);
        break;
    case CTL_PROGRESS:
        on_progress(rank, frame);
        break;
    case CTL_SETS:
        on_sets(rank, frame);
        break;
    case CTL_BYE:
        on_bye(relay, rank, frame);
        break;
    case CTL_REPAIRED:
        on_repaired(relay, rank, frame);
        break;
    default:
        log_warn("rank %d: unexpected control frame of type %d", rank->assignment.member,
                 frame->type);
    }
    for (size_t i = 0; i < frame->nfds; i++)
        close(frame->fds[i]);
}
