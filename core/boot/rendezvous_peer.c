/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous_peer: the side of a rank other than 0: connects until the root answers, proves that it
 * knows the key, sends its card, waits for the roster.
 *
 * Retries until the deadline while the root does not answer. A wrong key, a refusal or another
 * program at the root's address ends the attempts at once.
 */
#include "core/boot/rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/boot/wire.h"

#define RETRY_MS       50   /* longest pause between tries; the first ones are shorter */
#define TRY_MS         5000 /* one connection attempt */
#define ROOT_REPORT_MS 1000 /* wait beyond the deadline for the root to name the missing ranks */

struct peer {
    const struct rendezvous *rv;
    int fd;
    struct wire_session session;
    struct buf in, out;
};

/* Returns whether the socket is connected to itself: TCP can do this with a free local port when
 * nothing listens there. */
static bool met_itself(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

/* Returns a connected socket, or -errno. */
static int try_address(const struct addrinfo *a, uint64_t deadline)
{
    auto_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)
        return -errno;
    uint64_t limit = deadline_in_ms(TRY_MS);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    do {
        n = poll(&p, 1, deadline_poll_ms(limit < deadline ? limit : deadline));
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : -ETIMEDOUT;
    int code = 0, on = 1;
    socklen_t len = sizeof(code);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0 || code)
        return code ? -code : -errno;
    if (met_itself(fd))
        return -ECONNREFUSED;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    return take_fd(&fd);
}

/* Returns whether code means that this process is out of descriptors or memory: retrying does not
 * help then. */
static bool lacks_means(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS;
}

/* 0: connected; 1: not possible now, err has the reason; -errno: stop trying. */
static int connect_once(struct peer *peer, uint64_t deadline, struct err *err)
{
    struct addrinfo *list = NULL;
    int rc = rendezvous_resolve(peer->rv, &list, err);
    if (rc != 0)
        return rc;
    int fd = -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = try_address(a, deadline);
    freeaddrinfo(list);
    if (fd < 0) {
        err_sys(err, -fd, "cannot connect to rank 0 at %s:%s", peer->rv->host, peer->rv->port);
        return lacks_means(-fd) ? fd : 1;
    }
    peer->fd = fd;
    return 0;
}

/* Reads until a whole frame of an allowed type is at the start of peer->in. */
static int next_frame(struct peer *peer, unsigned allowed, uint64_t deadline,
                      struct wire_frame *ret)
{
    for (;;) {
        int rc = wire_parse(peer->in.data, peer->in.len, allowed, peer->rv->size, ret);
        if (rc <= 0)
            return rc;
        struct pollfd p = {.fd = peer->fd, .events = POLLIN};
        int n = poll(&p, 1, deadline_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && deadline_passed(deadline))
            return -ETIMEDOUT;
        void *room = buf_reserve(&peer->in, 16384);
        if (!room)
            return -ENOMEM;
        ssize_t got = recv(peer->fd, room, 16384, MSG_DONTWAIT);
        if (got == 0)
            return -ECONNRESET;
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        peer->in.len += got > 0 ? (size_t)got : 0;
    }
}

static int refused(const struct rendezvous *rv, const struct wire_frame *frame, size_t len,
                   struct err *err)
{
    char text[WIRE_TEXT_MAX + 1];
    memcpy(text, frame->body, len);
    text[len] = '\0';
    return err_set(err, ECONNREFUSED, "rank 0 at %s:%s: %s", rv->host, rv->port, text);
}

/* Sends HELLO and checks that the root knows the key. 1: the root closed before it answered (its
 * job ends, or its host is starting): try again. */
static int greet(struct peer *peer, uint64_t deadline, struct err *err)
{
    const struct rendezvous *rv = peer->rv;
    uint8_t nonce[MAC_NONCE_SIZE];
    mac_random(nonce, sizeof(nonce));
    buf_reset(&peer->in);
    buf_reset(&peer->out);
    wire_put_hello(&peer->out, &peer->session, rv->rank, rv->size, nonce);
    if (peer->out.failed)
        return err_set(err, ENOMEM, "out of memory");
    int rc = fd_write_full(peer->fd, peer->out.data, peer->out.len, deadline);
    struct wire_frame frame = {0};
    if (rc == 0)
        rc = next_frame(peer, 1u << WIRE_CHALLENGE, deadline, &frame);
    if (rc == -EPROTO)
        return err_set(err, EPROTO, "what listens at %s:%s is not a rank of hvd", rv->host,
                       rv->port);
    if (rc < 0) {
        err_sys(err, -rc, "no answer from rank 0 at %s:%s", rv->host, rv->port);
        return rc == -ENOMEM ? rc : 1;
    }
    if (frame.len != MAC_NONCE_SIZE + MAC_SIZE)
        return err_set(err, EPROTO, "rank 0 at %s:%s sent a broken frame", rv->host, rv->port);
    memcpy(peer->session.nonce, frame.body, MAC_NONCE_SIZE);
    size_t len;
    if (wire_check(&peer->session, &frame, &len) < 0)
        return err_set(err, EACCES,
                       "rank 0 at %s:%s has another key (HVD_KEY_FILE differs, or another job is "
                       "using this port)",
                       rv->host, rv->port);
    buf_consume(&peer->in, frame.used);
    return 0;
}

static int give_card(struct peer *peer, const struct buf *card, uint64_t deadline, struct err *err)
{
    buf_reset(&peer->out);
    wire_put_proven(&peer->out, &peer->session, WIRE_CARD, card->data, card->len);
    if (peer->out.failed)
        return err_set(err, ENOMEM, "out of memory");
    int rc = fd_write_full(peer->fd, peer->out.data, peer->out.len, deadline);
    return rc < 0 ? err_sys(err, -rc, "rank 0 at %s:%s", peer->rv->host, peer->rv->port) : 0;
}

static int take_roster(struct peer *peer, uint64_t deadline, struct rendezvous_result *result,
                       struct err *err)
{
    const struct rendezvous *rv = peer->rv;
    uint64_t last = deadline > UINT64_MAX - ROOT_REPORT_MS * CLOCK_MS
                        ? deadline
                        : deadline + ROOT_REPORT_MS * CLOCK_MS;
    struct wire_frame frame;
    size_t len;
    int rc = next_frame(peer, 1u << WIRE_ROSTER | 1u << WIRE_REFUSE, last, &frame);
    if (rc == -ETIMEDOUT)
        return err_set(err, ETIMEDOUT,
                       "rank 0 at %s:%s still waits for other ranks; its own message names them",
                       rv->host, rv->port);
    if (rc < 0)
        return err_sys(err, -rc, "lost rank 0 at %s:%s while waiting for the other ranks", rv->host,
                       rv->port);
    rc = wire_check(&peer->session, &frame, &len);
    if (rc == 0 && frame.type == WIRE_REFUSE)
        return refused(rv, &frame, len, err);
    if (rc == 0)
        rc = wire_get_roster(frame.body, len, rv->size, result->cards, result->session);
    return rc < 0 ? err_sys(err, -rc, "bad roster from rank 0 at %s:%s", rv->host, rv->port) : 0;
}

static int connect_and_greet(struct peer *peer, uint64_t deadline, struct err *err)
{
    for (long pause_ms = 1;; pause_ms = pause_ms * 2 < RETRY_MS ? pause_ms * 2 : RETRY_MS) {
        struct err why = {0};
        int rc = connect_once(peer, deadline, &why);
        if (rc == 0) {
            rc = greet(peer, deadline, &why);
            if (rc == 0)
                return 0;
            close(peer->fd);
            peer->fd = -1;
        }
        if (rc < 0)
            return err_set(err, -rc, "%s", why.msg);
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000L}, NULL);
        if (deadline_passed(deadline))
            return err_set(err, ETIMEDOUT, "gave up waiting for rank 0: %s", why.msg);
    }
}

int rendezvous_peer(const struct rendezvous *rv, const struct buf *card, uint64_t deadline,
                    struct rendezvous_result *result, struct err *err)
{
    struct peer peer = {.rv = rv, .fd = -1, .session = {.key = rv->key}};
    int rc = connect_and_greet(&peer, deadline, err);
    if (rc == 0)
        rc = give_card(&peer, card, deadline, err);
    if (rc == 0)
        rc = take_roster(&peer, deadline, result, err);
    if (peer.fd >= 0)
        close(peer.fd);
    buf_fini(&peer.in);
    buf_fini(&peer.out);
    return rc;
}
