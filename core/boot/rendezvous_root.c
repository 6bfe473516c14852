/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous_root: the side of rank 0: listens, authenticates connections, collects the cards, and
 * sends the roster to every rank once all cards are there.
 *
 * The root polls the listener and the connections (conns) in one loop. An error of a connection
 * ends only that connection. The number of connections, the bytes of each and the time are limited.
 * Without memory, the root tells the ranks that are connected and fails.
 */
#include "core/boot/rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/boot/boot.h"
#include "core/boot/wire.h"

/* connections beyond the number of ranks, for connections that are not of this job */
#define SPARE_CONNS   64
#define CONN_MS       5000 /* limit from accept to a valid card */
#define MISSING_NAMED 16   /* most ranges of missing ranks in a message */

static const char NO_MEMORY[] = "rank 0 gave up: out of memory";

enum phase {
    PHASE_HELLO,   /* no whole HELLO has arrived yet */
    PHASE_CARD,    /* the challenge was sent */
    PHASE_READY,   /* the peer's card is here; the peer waits for the roster */
    PHASE_SENDING, /* rank 0 is sending the roster to this peer */
    PHASE_GONE,    /* closed; compact() frees the slot */
};

struct conn {
    int fd;
    enum phase phase;
    uint32_t rank, size; /* as the peer claims in HELLO; verified from PHASE_READY on */
    uint64_t limit;      /* deadline for PHASE_READY */
    struct wire_session session;
    struct buf in;
    uint8_t proof[MAC_SIZE]; /* proof of the roster for this connection */
    size_t sent;
};

struct root {
    const struct rendezvous *rv;
    int listener;
    struct conn *conns;
    struct pollfd *polls; /* [0] the listener, then the connections */
    size_t nconns, max_conns;
    struct buf *cards;
    bool *here; /* [size], ranks whose card has arrived */
    int nhere;
    struct buf roster; /* header and body, without the proof */
    uint64_t refused;
    bool no_memory; /* an allocation for a connection failed; it may be a rank, so the root fails
                     */
    int accept_rc;  /* -EMFILE or -ENFILE: a waiting connection cannot be accepted; 0: none */
};

/* ---- connections --------------------------------------------------------------------------- */

static void conn_close(struct root *root, struct conn *conn)
{
    if (conn->phase == PHASE_GONE)
        return;
    if (conn->phase == PHASE_READY) {
        root->here[conn->rank] = false;
        root->nhere--;
    }
    close(conn->fd);
    buf_fini(&conn->in);
    conn->phase = PHASE_GONE;
}

static void conn_refuse(struct root *root, struct conn *conn, const char *why)
{
    root->refused++;
    log_debug("rendezvous: refused a connection: %s", why);
    conn_close(root, conn);
}

/* Sends a short frame to a socket whose buffer is empty. If it does not fit, the peer does not
 * read and is refused. */
static void conn_tell(struct root *root, struct conn *conn, enum wire_type type, const void *body,
                      size_t len)
{
    struct buf out = {0};
    wire_put_proven(&out, &conn->session, type, body, len);
    root->no_memory |= out.failed;
    if (out.failed ||
        send(conn->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)out.len)
        conn_refuse(root, conn, "it does not read");
    buf_fini(&out);
}

static void conn_hello(struct root *root, struct conn *conn, const struct wire_frame *frame)
{
    if (wire_get_hello(frame, &conn->rank, &conn->size) < 0) {
        conn_refuse(root, conn, "broken hello");
        return;
    }
    memcpy(conn->session.hello, frame->body, WIRE_HELLO_SIZE);
    conn->phase = PHASE_CARD;
    conn_tell(root, conn, WIRE_CHALLENGE, conn->session.nonce, MAC_NONCE_SIZE);
}

static void conn_card(struct root *root, struct conn *conn, const struct wire_frame *frame)
{
    char why[WIRE_TEXT_MAX] = "";
    int size = root->rv->size;
    size_t len;
    if (wire_check(&conn->session, frame, &len) < 0) {
        conn_refuse(root, conn, "wrong key");
        return;
    }
    if (conn->size != (uint32_t)size)
        snprintf(why, sizeof(why), "this job has %d ranks, rank %u was told %u", size, conn->rank,
                 conn->size);
    else if (conn->rank == 0 || conn->rank >= (uint32_t)size)
        snprintf(why, sizeof(why), "there is no place for rank %u", conn->rank);
    else if (root->here[conn->rank])
        snprintf(why, sizeof(why), "rank %u is here already (started twice, or two jobs?)",
                 conn->rank);
    if (why[0]) {
        conn_tell(root, conn, WIRE_REFUSE, why, strlen(why));
        conn_refuse(root, conn, why);
        return;
    }
    struct buf *card = &root->cards[conn->rank];
    buf_reset(card);
    buf_put(card, frame->body, len);
    if (card->failed) {
        root->no_memory = true;
        return;
    }
    root->here[conn->rank] = true;
    root->nhere++;
    conn->phase = PHASE_READY;
}

static unsigned allowed_in(enum phase phase)
{
    return phase == PHASE_HELLO ? 1u << WIRE_HELLO : phase == PHASE_CARD ? 1u << WIRE_CARD : 0;
}

/* Reads what has arrived and handles each whole frame. */
static void conn_read(struct root *root, struct conn *conn)
{
    void *room = buf_reserve(&conn->in, BOOT_CARD_MAX + 1024);
    if (!room) {
        root->no_memory = true;
        return;
    }
    ssize_t got = recv(conn->fd, room, BOOT_CARD_MAX + 1024, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        if (conn->phase >= PHASE_READY)
            conn_close(root, conn);
        else
            conn_refuse(root, conn, "it left");
        return;
    }
    conn->in.len += (size_t)got;
    while (conn->phase != PHASE_GONE && conn->in.len) {
        struct wire_frame frame;
        int rc = wire_parse(conn->in.data, conn->in.len, allowed_in(conn->phase), root->rv->size,
                            &frame);
        if (rc == 1)
            return;
        if (rc < 0)
            conn_refuse(root, conn, "no frame of hvd, or out of turn");
        else if (conn->phase == PHASE_HELLO)
            conn_hello(root, conn, &frame);
        else
            conn_card(root, conn, &frame);
        if (conn->phase != PHASE_GONE)
            buf_consume(&conn->in, frame.used);
    }
}

/* Makes room for one more connection: if all slots are used, refuses the oldest one that has not
 * proved the key. */
static void make_room(struct root *root)
{
    for (size_t i = 0; i < root->nconns && root->nconns == root->max_conns; i++) {
        struct conn *conn = &root->conns[i];
        if (conn->phase < PHASE_READY) {
            conn_refuse(root, conn, "too many strangers");
            return;
        }
    }
}

static void compact(struct root *root)
{
    size_t kept = 0;
    for (size_t i = 0; i < root->nconns; i++) {
        if (root->conns[i].phase != PHASE_GONE)
            root->conns[kept++] = root->conns[i];
    }
    root->nconns = kept;
}

static void accept_conns(struct root *root)
{
    for (;;) {
        int fd = accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            root->accept_rc = fd_limit_reached(-errno) ? -errno : 0;
            return;
        }
        make_room(root);
        compact(root);
        if (root->nconns == root->max_conns) {
            close(fd);
            continue;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        struct conn *conn = &root->conns[root->nconns++];
        *conn = (struct conn){.fd = fd,
                              .phase = PHASE_HELLO,
                              .limit = deadline_in_ms(CONN_MS),
                              .session = {.key = root->rv->key}};
        mac_random(conn->session.nonce, sizeof(conn->session.nonce));
    }
}

static void drop_slow_conns(struct root *root)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *conn = &root->conns[i];
        if (conn->phase < PHASE_READY && deadline_passed(conn->limit))
            conn_refuse(root, conn, "too slow");
    }
}

/* Called when no descriptor is free for the next connection. Returns whether there is a connection
 * that has not proved the key: its end would free one. */
static bool may_leave(const struct root *root)
{
    for (size_t i = 0; i < root->nconns; i++)
        if (root->conns[i].phase < PHASE_READY)
            return true;
    return false;
}

/* ---- waiting for all ----------------------------------------------------------------------- */

/* Writes the missing ranks as "2, 5-7". */
static void name_missing(const struct root *root, char *text, size_t size)
{
    size_t len = 0;
    int named = 0;
    text[0] = '\0';
    for (int r = 0; r < root->rv->size && len < size; r++) {
        if (root->here[r])
            continue;
        int first = r;
        while (r + 1 < root->rv->size && !root->here[r + 1])
            r++;
        if (named++ == MISSING_NAMED) {
            snprintf(text + len, size - len, ", ...");
            return;
        }
        len += (size_t)snprintf(text + len, size - len, "%s%d", len ? ", " : "", first);
        if (r > first && len < size)
            len += (size_t)snprintf(text + len, size - len, "-%d", r);
    }
}

/* Fails, and sends the reason to all ranks that are connected, so that each reports the same. */
static int give_up(struct root *root, int errnum, const char *why, struct err *err)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *conn = &root->conns[i];
        if (conn->phase == PHASE_READY)
            conn_tell(root, conn, WIRE_REFUSE, why, strlen(why));
    }
    return err_set(err, errnum, "%s", why);
}

static int timed_out(struct root *root, struct err *err)
{
    char missing[256], why[WIRE_TEXT_MAX];
    name_missing(root, missing, sizeof(missing));
    int n = root->rv->size - root->nhere;
    snprintf(why, sizeof(why), "timed out waiting for rank%s %s (%d of %d did not come)",
             n == 1 ? "" : "s", missing, n, root->rv->size);
    return give_up(root, ETIMEDOUT, why, err);
}

static int no_descriptors(struct root *root, struct err *err)
{
    char limit[128], why[WIRE_TEXT_MAX];
    fd_out_text(root->accept_rc, limit, sizeof(limit));
    snprintf(why, sizeof(why), "rank 0 holds %d of %d ranks and cannot accept another one: %s",
             root->nhere, root->rv->size, limit);
    return give_up(root, -root->accept_rc, why, err);
}

/* Polls once, for at most 200 ms, so that slow connections are dropped in time. While no connection
 * can be accepted, polls without the listener, which would stay readable, for 20 ms. */
static int turn(struct root *root, uint64_t deadline, bool sending)
{
    bool listens = !sending && !root->accept_rc;
    root->polls[0] = (struct pollfd){.fd = listens ? root->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < root->nconns; i++) {
        const struct conn *conn = &root->conns[i];
        short events = conn->phase == PHASE_SENDING ? POLLOUT : POLLIN;
        root->polls[i + 1] = (struct pollfd){.fd = conn->fd, .events = events};
    }
    uint64_t slice = deadline_in_ms(root->accept_rc ? 20 : 200);
    int n =
        poll(root->polls, root->nconns + 1, deadline_poll_ms(slice < deadline ? slice : deadline));
    return n < 0 && errno != EINTR ? -errno : 0;
}

static int collect(struct root *root, uint64_t deadline, struct err *err)
{
    while (root->nhere < root->rv->size) {
        if (deadline_passed(deadline))
            return timed_out(root, err);
        int rc = turn(root, deadline, false);
        if (rc < 0)
            return err_sys(err, -rc, "poll");
        for (size_t i = 0; i < root->nconns; i++) {
            if (root->polls[i + 1].revents)
                conn_read(root, &root->conns[i]);
        }
        if (root->no_memory)
            return give_up(root, ENOMEM, NO_MEMORY, err);
        drop_slow_conns(root);
        compact(root);
        if (root->polls[0].revents || root->accept_rc)
            accept_conns(root);
        if (root->accept_rc && !may_leave(root))
            return no_descriptors(root, err);
    }
    return 0;
}

/* ---- sending the roster -------------------------------------------------------------------- */

/* Sends what the socket takes. 0: all is sent; 1: more to send; -errno. */
static int conn_send(struct root *root, struct conn *conn)
{
    size_t shared = root->roster.len, all = shared + MAC_SIZE;
    while (conn->sent < all) {
        bool head = conn->sent < shared;
        const uint8_t *from =
            head ? root->roster.data + conn->sent : conn->proof + (conn->sent - shared);
        size_t n = head ? shared - conn->sent : all - conn->sent;
        ssize_t put = send(conn->fd, from, n, MSG_NOSIGNAL | MSG_DONTWAIT | (head ? MSG_MORE : 0));
        if (put < 0)
            return errno == EAGAIN || errno == EINTR ? 1 : -errno;
        conn->sent += (size_t)put;
    }
    return 0;
}

static int prepare_roster(struct root *root, const uint8_t session[MAC_NONCE_SIZE], struct err *err)
{
    struct buf body = {0};
    uint8_t digest[MAC_SIZE];
    wire_put_roster(&body, root->cards, root->rv->size, session);
    wire_put_header(&root->roster, WIRE_ROSTER, body.len + MAC_SIZE);
    buf_put(&root->roster, body.data, body.len);
    bool failed = body.failed || root->roster.failed;
    if (!failed)
        wire_digest(root->rv->key, body.data, body.len, digest);
    buf_fini(&body);
    if (failed)
        return give_up(root, ENOMEM, NO_MEMORY, err);
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *conn = &root->conns[i];
        if (conn->phase == PHASE_READY) {
            wire_prove(&conn->session, WIRE_ROSTER, digest, conn->proof);
            conn->phase = PHASE_SENDING;
        } else {
            conn_refuse(root, conn, "all ranks are here");
        }
    }
    compact(root);
    return 0;
}

static int distribute(struct root *root, uint64_t deadline, struct err *err)
{
    while (root->nconns > 0) {
        for (size_t i = 0; i < root->nconns; i++) {
            struct conn *conn = &root->conns[i];
            int rc = conn_send(root, conn);
            if (rc < 0)
                return err_sys(err, -rc, "rank %u left before all ranks had met", conn->rank);
            if (rc == 0)
                conn_close(root, conn);
        }
        compact(root);
        if (root->nconns && deadline_passed(deadline))
            return err_set(err, ETIMEDOUT, "rank %u does not read the roster", root->conns[0].rank);
        int rc = root->nconns ? turn(root, deadline, true) : 0;
        if (rc < 0)
            return err_sys(err, -rc, "poll");
    }
    return 0;
}

/* ---- the exchange -------------------------------------------------------------------------- */

static int root_init(struct root *root, const struct rendezvous *rv, const struct buf *card,
                     struct buf *cards, struct err *err)
{
    *root = (struct root){.rv = rv, .listener = -1, .cards = cards, .nhere = 1};
    root->max_conns = (size_t)rv->size + SPARE_CONNS;
    root->conns = calloc(root->max_conns, sizeof(*root->conns));
    root->polls = calloc(root->max_conns + 1, sizeof(*root->polls));
    root->here = calloc((size_t)rv->size, sizeof(*root->here));
    buf_reset(&cards[0]);
    buf_put(&cards[0], card->data, card->len);
    if (!root->conns || !root->polls || !root->here || cards[0].failed)
        return err_set(err, ENOMEM, "out of memory");
    root->here[0] = true;
    return 0;
}

static void root_fini(struct root *root)
{
    for (size_t i = 0; i < root->nconns; i++)
        conn_close(root, &root->conns[i]);
    if (root->listener >= 0)
        close(root->listener);
    buf_fini(&root->roster);
    free(root->conns);
    free(root->polls);
    free(root->here);
}

int rendezvous_root(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct rendezvous_result *result, struct err *err)
{
    struct root root;
    int rc = root_init(&root, rv, card, result->cards, err);
    if (rc == 0) /* for the listener and a connection of each rank */
        rc = fd_limit_need((size_t)rv->size + 1, err);
    if (rc == 0)
        rc = rendezvous_listen(rv, deadline, &root.listener, err);
    if (rc == 0)
        rc = collect(&root, deadline, err);
    mac_random(result->session, sizeof(result->session));
    if (rc == 0)
        rc = prepare_roster(&root, result->session, err);
    if (rc == 0)
        rc = distribute(&root, deadline, err);
    result->refused = root.refused;
    if (root.refused)
        log_warn("rendezvous %s:%s: refused %llu connections (wrong key, garbage or strangers)",
                 rv->host, rv->port, (unsigned long long)root.refused);
    root_fini(&root);
    return rc;
}
