/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: see agent.h. HVD_AGENT_FD names this rank's end of a Unix socket (base/ctl.h); the agent
 * also sets HVD_RANK and HVD_SIZE. The rank says HELLO with its card. The agent answers with the
 * ROSTER once every agent has every card, or with NUMBERS if other ranks train already.
 *
 * The descriptor belongs to the process: it stays open over boot_fini(), so that hvd_init() can be
 * called again. From its first use it is close-on-exec, so that a program which a rank starts
 * cannot speak for the rank.
 */
#include "core/boot/agent.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/env.h"
#include "core/base/fd.h"
#include "core/base/log.h"

#define WHY_MAX   400 /* bytes of the agent's text about a lost rank */
#define CANCEL_MS 100
#define SAY_FIRST (10 * CLOCK_S) /* until a joiner warns that it waits for a boundary */
#define SAY_AGAIN (60 * CLOCK_S)

/* A joiner that waits to be admitted: since when, and when to warn next. */
struct waiting {
    uint64_t since, due;
};

static int agent_probe(struct boot *boot, struct err *err)
{
    int64_t fd = -1, rank = 0, size = 1;
    if (!env_get("AGENT_FD"))
        return 0;
    int rc = env_int("AGENT_FD", -1, 0, INT32_MAX, &fd, err);
    if (rc < 0)
        return rc;
    int domain = -1, type = -1;
    socklen_t len = sizeof(int);
    if (getsockopt((int)fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX ||
        getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
        return err_set(err, EBADF,
                       "HVD_AGENT_FD=%d is not the agent's socket: only the process that hvd-agent "
                       "has started can be its rank",
                       (int)fd);
    if (!env_get("RANK") || !env_get("SIZE"))
        return err_set(err, EINVAL, "HVD_AGENT_FD is set without HVD_RANK and HVD_SIZE");
    rc = env_int("SIZE", 1, 1, BOOT_SIZE_MAX, &size, err);
    if (rc == 0)
        rc = env_int("RANK", 0, 0, size - 1, &rank, err);
    if (rc == 0)
        rc = fd_set_cloexec((int)fd, 1);
    if (rc < 0)
        return rc;
    rc = env_bool("ELASTIC", false, &boot->elastic, err);
    if (rc < 0)
        return rc;
    boot->agent_fd = (int)fd;
    ctl_init(&boot->ctl, (int)fd);
    boot->why = CTL_JOIN;
    boot->rank = (int)rank;
    boot->size = (int)size;
    boot->has_key = true;
    return 1;
}

/* Reads one rank's part of a roster into the arrays at index i. */
static int take_rank(struct boot *boot, struct reader *r, uint32_t i, struct err *err)
{
    uint8_t flags = reader_u8(r);
    uint32_t member = reader_u32(r), place = flags & CTL_PLACE ? reader_u32(r) : i;
    uint32_t n = reader_u32(r);
    const void *card = n <= BOOT_CARD_MAX ? reader_bytes(r, n) : NULL;
    if (r->failed || !card || flags > (CTL_LOCAL | CTL_NEW | CTL_PLACE))
        return err_set(err, EPROTO, "the agent sent a broken card of rank %u", i);
    if (place >= BOOT_SIZE_MAX || (i > 0 && (int)place <= boot->places[i - 1]))
        return err_set(err, EPROTO, "the agent sent place %u for rank %u", place, i);
    boot->local[i] = flags & CTL_LOCAL;
    boot->is_new[i] = flags & CTL_NEW;
    boot->members[i] = member;
    boot->places[i] = (int)place;
    if (flags & CTL_PLACE && !boot->keeps_places) /* later other threads read it */
        boot->keeps_places = true;
    buf_put(&boot->cards[i], card, n);
    return boot->cards[i].failed ? err_set(err, ENOMEM, "out of memory") : 0;
}

int boot_agent_roster(struct boot *boot, const uint8_t *body, size_t len, struct err *err)
{
    struct reader r = reader_over(body, len);
    uint32_t epoch = reader_u32(&r), rank = reader_u32(&r), size = reader_u32(&r);
    const void *key = reader_bytes(&r, BOOT_KEY_SIZE);
    uint32_t change = reader_u32(&r);
    uint64_t departed_done = reader_u64(&r);
    /* A card takes at least nine bytes: allocate nothing for a size that the length rules out. */
    if (r.failed || size == 0 || size > BOOT_SIZE_MAX || rank >= size || size > len / 9)
        return err_set(err, EPROTO, "the agent sent an invalid roster");
    boot_drop_cards(boot);
    boot->size = (int)size;
    int rc = boot_make_cards(boot, true, err);
    for (uint32_t i = 0; rc == 0 && i < size; i++)
        rc = take_rank(boot, &r, i, err);
    if (rc == 0 && !reader_ok(&r))
        rc = err_set(err, EPROTO, "the agent sent a roster with bytes left over");
    if (rc < 0)
        return rc;
    boot->epoch = epoch;
    boot->change = change;
    boot->departed_done = departed_done;
    boot->rank = (int)rank;
    memcpy(boot->key, key, BOOT_KEY_SIZE);
    return 0;
}

int boot_agent_numbers(struct boot *boot, const uint8_t *body, size_t len, struct err *err)
{
    struct reader r = reader_over(body, len);
    uint32_t epoch = reader_u32(&r), words[6];
    for (size_t i = 0; i < 6; i++) {
        words[i] = reader_u32(&r);
        if (words[i] > BOOT_SIZE_MAX)
            return err_set(err, EPROTO, "the agent sent invalid numbers");
    }
    uint32_t place = !r.failed && r.pos < r.len ? reader_u32(&r) : words[0];
    struct boot_numbers p = {epoch,         (int)words[0], (int)words[1], (int)words[2],
                             (int)words[3], (int)words[4], (int)words[5], (int)place};
    if (!reader_ok(&r) || p.rank >= p.size || p.local_size < 1 || p.local_size > p.size ||
        p.cross_rank >= p.cross_size || p.cross_size > p.size || place < words[0] ||
        place >= BOOT_SIZE_MAX)
        return err_set(err, EPROTO, "the agent sent invalid numbers");
    boot->numbers = p;
    return 0;
}

static int rank_lost(const struct ctl_frame *frame, struct err *err)
{
    struct reader r = reader_over(frame->body, frame->len);
    uint32_t rank = reader_u32(&r);
    int32_t status = (int32_t)reader_u32(&r);
    if (r.failed)
        return err_set(err, EPROTO, "the agent sent a broken frame");
    size_t n = frame->len - r.pos;
    if (n > 0)
        return err_set(err, ECONNRESET, "not all ranks have started: %.*s",
                       (int)(n < WHY_MAX ? n : WHY_MAX), (const char *)frame->body + r.pos);
    return err_set(err, ECONNRESET, "rank %u ended (%s %d) before all ranks had started", rank,
                   status < 0 ? "signal" : "exit code", status < 0 ? -status : status);
}

/* Members that were lost while this rank waited for the roster. A roster made before the loss may
 * still list them. */
struct losses {
    uint32_t *list;
    size_t n, cap;
};

static int note_loss(struct losses *l, const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    uint32_t member = reader_u32(&r);
    if (r.failed)
        return 0;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16;
        uint32_t *grown = realloc(l->list, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        l->list = grown;
        l->cap = cap;
    }
    l->list[l->n++] = member;
    return 0;
}

static int check_losses(const struct boot *boot, const struct losses *l, struct err *err)
{
    for (int r = 0; r < boot->size; r++)
        for (size_t i = 0; i < l->n; i++)
            if (boot->members[r] == l->list[i])
                return err_set(err, EAGAIN, "rank %d was lost before this rank could connect to it",
                               r);
    return 0;
}

/* Returns the ns of a CTL_AWAY. */
static uint64_t take_away(const struct ctl_frame *frame)
{
    struct reader r = reader_over(frame->body, frame->len);
    uint64_t ms = reader_u32(&r);
    return r.failed ? 0 : ms * CLOCK_MS;
}

enum { ROSTER_CAME, NOT_YET, NUMBERS_CAME };

/* Handles one frame. Frames from before this hvd_init() may come first, such as a SHARE that nobody
 * read. */
static int take_frame(struct boot *boot, struct ctl_frame *frame, struct losses *lost,
                      struct err *err)
{
    int n = (int)(frame->len < WHY_MAX ? frame->len : WHY_MAX), rc;
    if (frame->type == CTL_LIFELINE && frame->nfds == 1)
        boot_take_lifeline(boot, frame->fds[0]);
    for (size_t i = 0; i < frame->nfds; i++)
        close(frame->fds[i]);
    switch (frame->type) {
    case CTL_ROSTER:
        rc = boot_agent_roster(boot, frame->body, frame->len, err);
        return rc < 0 ? rc : check_losses(boot, lost, err);
    case CTL_LOST:
        if (!boot->elastic)
            return rank_lost(frame, err);
        return note_loss(lost, frame) < 0 ? err_set(err, ENOMEM, "out of memory") : NOT_YET;
    case CTL_AWAY:
        boot->away += take_away(frame);
        return NOT_YET;
    case CTL_CHANGE:
        boot_heard_change(boot, frame->body, frame->len);
        return NOT_YET;
    case CTL_NUMBERS:
        if (!boot->elastic || boot->why != CTL_JOIN)
            return NOT_YET;
        rc = boot_agent_numbers(boot, frame->body, frame->len, err);
        return rc < 0 ? rc : NUMBERS_CAME;
    case CTL_LEAVE:
        return err_set(err, ESHUTDOWN, "%.*s", n,
                       n ? (const char *)frame->body : "this rank was asked to leave");
    default:
        return NOT_YET;
    }
}

/* Joiners are admitted only at a step boundary. Warns a joiner that waits long for one. */
static void say_waiting(const struct boot *boot, struct waiting *w)
{
    uint64_t now = clock_ns();
    if (boot->why != CTL_ENTER || now < w->due)
        return;
    log_warn(
        "ready to join for %llu s: the ranks that train admit joiners only at a step boundary, "
        "hvd_commit() (Python: state.commit()), and have reached none since",
        (unsigned long long)((now - w->since) / CLOCK_S));
    w->due = now + SAY_AGAIN;
}

static int too_late(const struct boot *boot, const struct waiting *w, struct err *err)
{
    if (boot->why != CTL_ENTER)
        return err_set(err, ETIMEDOUT, "the agent has no roster yet: not every rank has started");
    return err_set(err, ETIMEDOUT,
                   "ready to join for %llu s: the ranks that train reached no step boundary, "
                   "hvd_commit() (Python: state.commit())",
                   (unsigned long long)((clock_ns() - w->since) / CLOCK_S));
}

/* Waits in slices of CANCEL_MS, to notice boot->cancel. */
static int next_frame(struct boot *boot, struct ctl_frame *ret, uint64_t deadline,
                      struct waiting *w, struct err *err)
{
    for (;;) {
        say_waiting(boot, w);
        uint64_t slice = deadline_in_ms(CANCEL_MS);
        uint64_t limit = boot_extended(boot, deadline);
        bool last = limit <= slice;
        if (boot->cancel && atomic_load(boot->cancel))
            return err_set(err, ESHUTDOWN, "hvd_shutdown() was called");
        int rc = ctl_wait(&boot->ctl, ret, last ? limit : slice);
        if (rc == -ETIMEDOUT && !last)
            continue;
        if (rc == -ETIMEDOUT)
            return too_late(boot, w, err);
        if (rc < 0)
            return err_sys(err, -rc, "%s",
                           fd_limit_reached(rc)
                               ? "cannot receive the agent's frames"
                               : "lost the agent while waiting for the other ranks");
        return 0;
    }
}

static int await_roster(struct boot *boot, uint64_t deadline, struct err *err)
{
    uint64_t now = clock_ns();
    struct waiting w = {now, now + SAY_FIRST};
    struct losses lost = {0};
    int rc = NOT_YET;
    while (rc == NOT_YET) {
        struct ctl_frame frame;
        rc = next_frame(boot, &frame, deadline, &w, err);
        if (rc == 0)
            rc = take_frame(boot, &frame, &lost, err);
    }
    free(lost.list);
    return rc == NUMBERS_CAME ? 1 : rc;
}

static int agent_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                          struct err *err)
{
    struct buf body = {0};
    buf_put_u16(&body, CTL_VERSION);
    buf_put_u32(&body, (uint32_t)getpid());
    buf_put_u8(&body, (uint8_t)boot->why);
    buf_put_u32(&body, boot->why == CTL_JOIN || boot->why == CTL_ENTER ? 0 : boot->epoch);
    buf_put(&body, card->data, card->len);
    int rc = ctl_send(&boot->ctl, CTL_HELLO, &body, NULL, 0);
    if (rc < 0)
        err_sys(err, -rc, "cannot reach the agent");
    else
        rc = await_roster(boot, deadline, err);
    buf_fini(&body);
    return rc;
}

void boot_bye(struct boot *boot, int status, uint64_t done, const char *text)
{
    struct buf body = {0};
    if (boot->agent_fd < 0)
        return;
    buf_put_u32(&body, (uint32_t)status);
    buf_put_u64(&body, done);
    buf_put(&body, text, strlen(text));
    if (!body.failed)
        ctl_send(&boot->ctl, CTL_BYE, &body, NULL, 0);
    buf_fini(&body);
}

const struct boot_ops boot_agent_ops = {
    .name = "agent",
    .probe = agent_probe,
    .exchange = agent_exchange,
};
