/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_relay: control frames between ranks and the rest of the world. See agent.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "core/base/log.h"

/* Cards are sent together: when all ranks here have said HELLO, or after this. */
#define CARDS_WAIT_MS 20

static void send_lost(struct rank *to, int lost, int code, const char *text)
{
    struct buf body = {0};
    buf_put_u32(&body, (uint32_t)lost);
    buf_put_u32(&body, (uint32_t)code);
    buf_put(&body, text, strlen(text));
    rank_send(to, CTL_LOST, &body, NULL, 0);
    buf_fini(&body);
}

static bool in_world(const struct rank *rank)
{
    return !rank->over && rank->hello && !rank->waiting && !rank->bye;
}

/* A rank that is in a world must hear of a loss; one that waits for a world must hear of any end.
 */
static bool concerns(const struct rank *rank, const struct fate *fate)
{
    return (fate->lost && in_world(rank)) || (!rank->over && rank->waiting);
}

void agent_learn_fate(struct agent *a, int rank, bool lost, int code, const char *text)
{
    if (rank < 0 || rank >= a->welcome.size || a->fates[rank].over)
        return;
    struct fate *fate = &a->fates[rank];
    *fate = (struct fate){.over = true, .lost = lost, .code = code};
    snprintf(fate->text, sizeof(fate->text), "%s", text);
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i]->seat.member != rank && concerns(a->ranks[i], fate))
            send_lost(a->ranks[i], rank, code, fate->text);
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
        cards.cards[cards.n].member = r->seat.member;
        cards.cards[cards.n++].bytes = r->card; /* lent */
        r->posted = true;
    }
    if (cards.n > 0)
        outbox_cards(&a->outbox, &cards);
    free(cards.cards);
    agent_poll_roster(a);
}

/* The member of a rank that is a script has ended, the script goes on: the others must not wait for
 * the script's end to know it. A BYE may be on its way to be read. */
static void on_speaker_end(void *arg, uint32_t events)
{
    struct rank *rank = arg;
    struct agent *a = rank->arg;
    char text[256];
    (void)events;
    loop_fd_stop(&a->loop, &rank->speaker_lfd);
    rank_read_frames(rank);
    if (!in_world(rank))
        return;
    snprintf(text, sizeof(text), "rank %d on %s: its process %d ended without hvd_shutdown()",
             rank->seat.member, a->config.host, rank->speaker);
    log_warn("%s", text);
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i] != rank && in_world(a->ranks[i]))
            send_lost(a->ranks[i], rank->seat.member, 0, text);
}

/* The end of the rank's own process is noticed anyway. */
static void watch_speaker(struct agent *a, struct rank *rank, int pid)
{
    loop_fd_stop(&a->loop, &rank->speaker_lfd);
    rank->speaker = pid;
    if (pid > 1 && pid != rank->pid && getpgid(pid) == rank->pid)
        loop_pid_start(&a->loop, &rank->speaker_lfd, pid, on_speaker_end, rank);
}

static void on_hello(struct agent *a, struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    uint16_t version = reader_u16(&r);
    uint32_t pid = reader_u32(&r);
    uint8_t why = reader_u8(&r);
    reader_u32(&r); /* the epoch it was in */
    size_t n = frame->len - r.pos;
    if (r.failed || version != CTL_VERSION || why > CTL_BOUNDARY || n > MEMBER_CARD_MAX) {
        log_warn("rank %d: a HELLO of version %d with a card of %zu bytes; want version %d",
                 rank->seat.member, version, n, CTL_VERSION);
        return;
    }
    log_debug("rank %d (pid %u) called hvd_init", rank->seat.member, pid);
    buf_reset(&rank->card);
    buf_put(&rank->card, frame->body + r.pos, n);
    watch_speaker(a, rank, (int)pid);
    rank->hello = rank->waiting = true;
    rank->bye = rank->posted = false;
    int waiting = 0;
    for (int i = 0; i < a->nranks; i++)
        waiting += a->ranks[i]->waiting;
    for (int i = 0; i < a->welcome.size; i++) {
        if (a->fates[i].over) {
            send_lost(rank, i, a->fates[i].code, a->fates[i].text);
            break;
        }
    }
    if (waiting == a->nranks)
        post_cards(a);
    else if (!a->cards_timer.on)
        loop_timer_start(&a->loop, &a->cards_timer, CARDS_WAIT_MS, post_cards, a);
}

static void send_roster(struct agent *a, struct rank *rank, const struct roster_body *roster)
{
    struct buf body = {0};
    buf_put_u32(&body, roster->epoch);
    buf_put_u32(&body, (uint32_t)rank->seat.member);
    buf_put_u32(&body, (uint32_t)roster->n);
    buf_put(&body, roster->key, sizeof(roster->key));
    buf_put_u32(&body, 0); /* no change */
    for (int i = 0; i < roster->n; i++) {
        const struct card *c = &roster->cards[i];
        buf_put_u8(&body, strcmp(c->agent, a->config.agent) == 0 ? CTL_LOCAL : 0);
        buf_put_u32(&body, (uint32_t)c->member);
        buf_put_u32(&body, (uint32_t)c->bytes.len);
        buf_put(&body, c->bytes.data, c->bytes.len);
    }
    rank_send(rank, CTL_ROSTER, &body, NULL, 0);
    explicit_bzero(body.data, body.len);
    buf_fini(&body);
}

void agent_install_roster(struct agent *a, const struct roster_body *roster)
{
    if (roster->epoch <= a->epoch)
        return;
    a->epoch = roster->epoch;
    for (int i = 0; i < a->nranks; i++) {
        struct rank *rank = a->ranks[i];
        if (!rank->waiting || !rank->posted)
            continue;
        rank->waiting = false;
        send_roster(a, rank, roster);
    }
}

/* ---- the other frames ----------------------------------------------------------------------- */

/* To the other ranks here that are in the world; the sender's rank is filled in. */
static void on_share(struct agent *a, struct rank *from, const struct ctl_frame *frame)
{
    struct buf body = {0};
    if (frame->len < 10)
        return;
    buf_put(&body, frame->body, 4);
    buf_put_u32(&body, (uint32_t)from->seat.member);
    buf_put(&body, frame->body + 8, frame->len - 8);
    for (int i = 0; i < a->nranks; i++) {
        struct rank *to = a->ranks[i];
        /* Also to one that has said BYE: it waits for the farewells of the others. */
        if (to != from && to->hello && !to->waiting && !to->over)
            rank_send(to, CTL_SHARE, &body, frame->fds, frame->nfds);
    }
    buf_fini(&body);
}

static void on_bye(struct agent *a, struct rank *rank)
{
    struct report_item item = {
        .type = REPORT_BYE, .member = rank->seat.member, .pid = (int)rank->pid};
    if (!rank->hello || rank->bye)
        return;
    rank->bye = true;
    rank->waiting = false;
    outbox_report(&a->outbox, &item);
}

static void on_progress(struct rank *rank, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    struct report_item item = {
        .type = REPORT_PROGRESS, .member = rank->seat.member, .pid = (int)rank->pid};
    item.batches = reader_u64(&r);
    item.bytes = reader_u64(&r);
    reader_u8(&r);
    size_t n = r.failed ? 0 : frame->len - r.pos;
    if (r.failed || item.batches > INT64_MAX || item.bytes > INT64_MAX)
        return;
    snprintf(item.text, sizeof(item.text), "%.*s", (int)(n < 400 ? n : 400),
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
        on_bye(a, rank);
        break;
    default:
        log_warn("rank %d: unexpected control frame of type %d", rank->seat.member, frame->type);
    }
    for (size_t i = 0; i < frame->nfds; i++)
        close(frame->fds[i]);
}
