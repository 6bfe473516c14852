/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_relay: passes control frames between ranks and the coordinator. See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "core/base/log.h"

/* Cards are posted together: once all ranks here have said HELLO, or after this time. */
#define CARDS_WAIT_MS 20
#define WORDS_MAX     400 /* bytes of a rank's text in BYE and PROGRESS */

static void send_lost(struct rank *to, int lost, int code, const char *text)
{
    struct buf body = {0};
    buf_put_u32(&body, (uint32_t)lost);
    buf_put_u32(&body, (uint32_t)code);
    buf_put(&body, text, strlen(text));
    rank_send(to, CTL_LOST, &body, NULL);
    buf_fini(&body);
}

bool rank_in_epoch(const struct rank *rank)
{
    return !rank->reaped && !rank->dead && rank->hello && !rank->waiting && !rank->arrived &&
           !rank->bye;
}

/* Must this rank be told of the end of another one? A rank in the current epoch: of a loss. In a
 * fixed job also: a rank that waits for the roster, of any end, because the roster will not come;
 * and a rank that has said BYE, of a loss, because it may wait in hvd_shutdown() for the lost
 * rank's farewell. */
static bool concerns(const struct agent *a, const struct rank *rank, const struct member_end *end)
{
    bool fixed = !a->welcome.elastic && !rank->reaped;
    bool parts = fixed && rank->hello && rank->bye;
    bool waits = fixed && rank->waiting;
    return (end->lost && (rank_in_epoch(rank) || parts)) || waits;
}

/* The member's entry; NULL: no memory, or no such member. */
static struct member_end *end_of(struct agent *a, int member)
{
    int n = a->nends ? a->nends : a->welcome.size;
    while (n <= member)
        n *= 2;
    if (member < 0 || member >= MEMBER_NUMBER_MAX ||
        (!a->welcome.elastic && member >= a->welcome.size))
        return NULL;
    if (n > a->nends) {
        struct member_end *grown = realloc(a->ends, (size_t)n * sizeof(*grown));
        if (!grown)
            return NULL;
        memset(grown + a->nends, 0, (size_t)(n - a->nends) * sizeof(*grown));
        a->ends = grown;
        a->nends = n;
    }
    return &a->ends[member];
}

/* In an elastic job the end of a member outside the current roster is no loss to the ranks. */
static bool is_known(const struct agent *a, int member)
{
    for (int i = 0; i < a->nworld; i++)
        if (a->world[i] == member)
            return true;
    return !a->welcome.elastic;
}

void agent_record_end(struct agent *a, int member, uint32_t epoch, bool lost, int code,
                      const char *text)
{
    struct member_end *end = end_of(a, member);
    if (!end || (end->known && (end->epoch >= epoch || !a->welcome.elastic)))
        return;
    *end = (struct member_end){.known = true, .lost = lost, .epoch = epoch, .code = code};
    snprintf(end->text, sizeof(end->text), "%s", text);
    for (int i = 0; i < a->nranks && is_known(a, member); i++)
        if (a->ranks[i]->assignment.member != member && concerns(a, a->ranks[i], end))
            send_lost(a->ranks[i], member, code, end->text);
}

/* ---- HELLO, cards, ROSTER ------------------------------------------------------------------- */

static void post_cards(void *arg)
{
    struct agent *a = arg;
    struct cards_body cards = {.epoch = a->epoch + 1};
    loop_timer_stop(&a->loop, &a->cards_timer);
    cards.cards = calloc((size_t)a->nranks, sizeof(*cards.cards));
    if (!cards.cards)
        return;
    for (int i = 0; i < a->nranks; i++) {
        struct rank *r = a->ranks[i];
        if (!r->waiting || r->posted)
            continue;
        cards.cards[cards.n].member = r->assignment.member;
        cards.cards[cards.n].why = r->why;
        cards.cards[cards.n].epoch = r->was_in;
        cards.cards[cards.n++].bytes = r->card; /* lent */
        r->posted = true;
    }
    if (cards.n > 0)
        outbox_cards(&a->outbox, &cards);
    free(cards.cards);
    agent_poll_roster(a);
}

/* May another rank here say HELLO soon? After a loss or at a boundary, every rank that is still in
 * the old epoch will; at the start every rank will. */
static bool more_to_come(const struct agent *a)
{
    bool repair = false, in_world = false, all = !agent_is_starting(a);
    for (int i = 0; i < a->nranks; i++) {
        const struct rank *r = a->ranks[i];
        repair |= r->waiting && r->why != CARD_JOIN;
        in_world |= rank_in_epoch(r);
        all &= r->waiting;
    }
    return repair && a->welcome.elastic ? in_world : !all;
}

void agent_consider_cards(struct agent *a)
{
    bool any = false;
    for (int i = 0; i < a->nranks; i++)
        any |= a->ranks[i]->waiting && !a->ranks[i]->posted;
    if (any && !more_to_come(a))
        post_cards(a);
}

/* In a rank that is a script, the process that called hvd_init() has ended while the script runs
 * on. The other ranks must learn of it before the script ends. Reads frames first: a BYE may be
 * unread. */
static void on_hello_end(void *arg, uint32_t events)
{
    struct rank *rank = arg;
    struct agent *a = rank->arg;
    char text[256];
    (void)events;
    loop_fd_stop(&a->loop, &rank->hello_lfd);
    rank_read_frames(rank);
    if (!rank_in_epoch(rank))
        return;
    if (a->welcome.elastic) {
        agent_declare_dead(a, rank, false, "");
        return;
    }
    snprintf(text, sizeof(text), "rank %d on %s: its process %d ended without hvd_shutdown()",
             rank->assignment.member, a->config.host, rank->hello_pid);
    log_warn("%s", text);
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i] != rank && rank_in_epoch(a->ranks[i]))
            send_lost(a->ranks[i], rank->assignment.member, 0, text);
}

/* Watches the process that said HELLO, if it is not the rank's own, whose end the agent sees
 * anyway. */
static void watch_hello(struct agent *a, struct rank *rank, int pid)
{
    loop_fd_stop(&a->loop, &rank->hello_lfd);
    rank->hello_pid = pid;
    if (pid > 1 && pid != rank->pid && getpgid(pid) == rank->pid)
        loop_pid_start(&a->loop, &rank->hello_lfd, pid, on_hello_end, rank);
}

static void on_hello(struct agent *a, struct rank *rank, const struct ctl_frame *frame)
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
    watch_hello(a, rank, (int)pid);
    agent_give_lifeline(a, rank);
    rank->hello = rank->waiting = true;
    rank->bye = rank->posted = rank->arrived = false;
    rank->bye_status = 0;
    rank->why = (enum card_why)why;
    rank->was_in = was_in;
    if (rank->assignment.member < a->nends && !rank->reaped) /* it failed and starts anew */
        a->ends[rank->assignment.member] = (struct member_end){0};
    for (int i = 0; i < a->nends && !a->welcome.elastic; i++) {
        if (a->ends[i].known) {
            send_lost(rank, i, a->ends[i].code, a->ends[i].text);
            break;
        }
    }
    if (!more_to_come(a))
        post_cards(a);
    else if (!a->cards_timer.on)
        loop_timer_start(&a->loop, &a->cards_timer, CARDS_WAIT_MS, post_cards, a);
}

/* Tells the rank which members of its roster are already known to be lost: no later event tells it
 * again. */
static void send_losses(struct agent *a, struct rank *rank, const struct roster_body *roster)
{
    for (int i = 0; i < roster->n && a->welcome.elastic; i++) {
        int member = roster->cards[i].member;
        if (member < a->nends && a->ends[member].known && a->ends[member].lost &&
            a->ends[member].epoch >= roster->epoch)
            send_lost(rank, member, a->ends[member].code, a->ends[member].text);
    }
}

static void send_roster(struct agent *a, struct rank *rank, const struct roster_body *roster)
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
        bool local = strcmp(c->agent, a->config.agent) == 0;
        buf_put_u8(&body, (uint8_t)((local ? CTL_LOCAL : 0) | (c->is_new ? CTL_NEW : 0)));
        buf_put_u32(&body, (uint32_t)c->member);
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

static void keep_world(struct agent *a, const struct roster_body *roster)
{
    int *world = realloc(a->world, (size_t)roster->n * sizeof(*world));
    a->world = world ? world : a->world;
    a->nworld = world ? roster->n : 0;
    for (int i = 0; i < a->nworld; i++)
        a->world[i] = roster->cards[i].member;
}

void agent_install_roster(struct agent *a, const struct roster_body *roster)
{
    if (roster->epoch <= a->epoch)
        return;
    a->epoch = roster->epoch;
    keep_world(a, roster);
    agent_announce(a, roster->announced);
    for (int i = 0; i < a->nranks; i++) {
        struct rank *rank = a->ranks[i];
        int roster_rank = rank_in(roster, rank->assignment.member);
        if (!rank->waiting || !rank->posted || roster_rank < 0)
            continue;
        rank->waiting = false;
        rank->roster_rank = roster_rank;
        rank->epoch = roster->epoch;
        if (a->change > roster->change) /* before the roster: its next boundary may be near */
            agent_send_change(a, rank);
        send_roster(a, rank, roster);
        send_losses(a, rank, roster);
    }
}

/* ---- the other frames ----------------------------------------------------------------------- */

/* Sender and receiver must both be in the epoch of the frame. */
static bool shares(const struct agent *a, const struct rank *rank, uint32_t epoch)
{
    return !a->welcome.elastic || (rank->roster_rank >= 0 && rank->epoch == epoch);
}

/* Passes a SHARE to the other ranks of this agent in the epoch, with the sender's rank filled in.
 * Takes ownership of the descriptors. */
static void on_share(struct agent *a, struct rank *from, struct ctl_frame *frame)
{
    struct buf body = {0};
    struct reader r = reader_over(frame->body, frame->len);
    uint32_t epoch = reader_u32(&r);
    if (frame->len < 10 || from->roster_rank < 0 || !shares(a, from, epoch))
        return;
    buf_put_u32(&body, epoch);
    buf_put_u32(&body, (uint32_t)from->roster_rank);
    buf_put(&body, frame->body + 8, frame->len - 8);
    struct ctl_fds *fds = frame->nfds ? ctl_fds_create(frame->fds, frame->nfds) : NULL;
    if (frame->nfds && !fds)
        body.failed = true; /* makes the send to each receiver fail */
    frame->nfds = 0;
    for (int i = 0; i < a->nranks; i++) {
        struct rank *to = a->ranks[i];
        /* Also to a rank that has said BYE, which waits for the others' farewells. */
        if (to != from && to->hello && !to->waiting && !to->reaped && shares(a, to, epoch))
            rank_send(to, CTL_SHARE, &body, fds);
    }
    ctl_fds_drop(fds);
    buf_fini(&body);
}

static void on_bye(struct agent *a, struct rank *rank, const struct ctl_frame *frame)
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
    rank->bye = true;
    rank->waiting = rank->arrived = false;
    rank->done = item.done = done;
    item.code = status < 0 ? status : 0;
    rank->bye_status = item.code;
    snprintf(item.text, sizeof(item.text), "%.*s", (int)(n < WORDS_MAX ? n : WORDS_MAX),
             (const char *)frame->body + r.pos);
    outbox_report(&a->outbox, &item);
    if (item.code == 0 || !a->welcome.elastic)
        return;
    agent_name(rank, name, sizeof(name));
    snprintf(text, sizeof(text), "%s on %s (pid %d) cannot go on: %s", name, a->config.host,
             (int)rank->pid, item.text[0] ? item.text : strerror(-item.code));
    agent_record_end(a, rank->assignment.member, END_FINAL, true, item.code, text);
    agent_consider_cards(a);
}

static void on_repaired(struct agent *a, struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    struct report_item item = {
        .type = REPORT_REPAIRED, .member = rank->assignment.member, .pid = (int)rank->pid};
    item.epoch = reader_u32(&r);
    item.ns = reader_u64(&r);
    if (!r.failed && item.ns <= INT64_MAX)
        outbox_report(&a->outbox, &item);
}

static void on_progress(struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    struct report_item item = {
        .type = REPORT_PROGRESS, .member = rank->assignment.member, .pid = (int)rank->pid};
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

void agent_on_frame(void *arg, struct rank *rank, struct ctl_frame *frame)
{
    struct agent *a = arg;
    switch (frame->type) {
    case CTL_HELLO:
        on_hello(a, rank, frame);
        break;
    case CTL_SHARE:
        on_share(a, rank, frame);
        break;
    case CTL_PROGRESS:
        on_progress(rank, frame);
        break;
    case CTL_BYE:
        on_bye(a, rank, frame);
        break;
    case CTL_REPAIRED:
        on_repaired(a, rank, frame);
        break;
    default:
        log_warn("rank %d: unexpected control frame of type %d", rank->assignment.member,
                 frame->type);
    }
    for (size_t i = 0; i < frame->nfds; i++)
        close(frame->fds[i]);
}
