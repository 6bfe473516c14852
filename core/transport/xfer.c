/* SPDX-License-Identifier: Apache-2.0
 *
 * xfer: transfers over a link (link.h): framing, cancelling, dropping messages of older
 * generations.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/transport/link_private.h"
#include "core/transport/verdict.h"

static const uint8_t zeros[16384];

void link_put_header(uint8_t dst[LINK_HEADER_SIZE], uint32_t generation, uint64_t tag,
                     uint64_t length)
{
    const uint64_t words[] = {htole64(LINK_MAGIC | (uint64_t)generation << 32), htole64(tag),
                              htole64(length)};
    memcpy(dst, words, LINK_HEADER_SIZE);
}

static struct link_header get_header(const uint8_t src[LINK_HEADER_SIZE])
{
    uint64_t words[3];
    memcpy(words, src, LINK_HEADER_SIZE);
    return (struct link_header){.magic = (uint32_t)le64toh(words[0]),
                                .generation = (uint32_t)(le64toh(words[0]) >> 32),
                                .tag = le64toh(words[1]),
                                .length = le64toh(words[2])};
}

/* Messages of links without generations have 0. */
static uint32_t generation_at(const struct link *link)
{
    return link->cls == LINK_SEND || link->cls == LINK_RECV ? 0 : link->net->mesh->generation;
}

void xfer_start(struct xfer *x, struct link *link, uint64_t tag, void *data, size_t len)
{
    *x = (struct xfer){.link = link, .tag = tag, .data = data, .len = len};
    link_put_header(x->header, generation_at(link), tag, len);
}

/* The first check of every transfer: 0 continue, 1 not now, -errno. */
static int usable(struct link *link)
{
    if (link->error)
        return link->error;
    return !link->ops || link->gone;
}

int link_flush_debt(struct link *link)
{
    while (link->debt_header_left || link->debt_zeros) {
        size_t head = link->debt_header_left;
        size_t n = link->debt_zeros < sizeof(zeros) ? (size_t)link->debt_zeros : sizeof(zeros);
        struct iovec iov[] = {{link->debt_header + LINK_HEADER_SIZE - head, head},
                              {(void *)zeros, n}};
        ssize_t put =
            head ? link->ops->write(link, iov, n ? 2 : 1) : link->ops->write(link, iov + 1, 1);
        if (put < 0) {
            link_write_failed(link, (int)put);
            return 1;
        }
        if (put == 0)
            return 1;
        size_t of_head = (size_t)put < head ? (size_t)put : head;
        link->debt_header_left -= of_head;
        link->debt_zeros -= (size_t)put - of_head;
    }
    return 0;
}

int xfer_send(struct xfer *x, size_t ready)
{
    struct link *link = x->link;
    int rc = usable(link);
    if (rc != 0)
        return rc;
    if (link_flush_debt(link) != 0)
        return 1;
    for (;;) {
        size_t head = sizeof(x->header) - x->header_done;
        size_t n = ready > x->done ? ready - x->done : 0;
        if (!head && x->done == x->len) {
            link->tx_open = false;
            return 0;
        }
        /* The header is sent together with the first bytes: one system call less. */
        if (n == 0 && (!head || x->len > 0))
            return 1;
        struct iovec iov[] = {{x->header + x->header_done, head}, {x->data + x->done, n}};
        ssize_t put =
            head ? link->ops->write(link, iov, n ? 2 : 1) : link->ops->write(link, iov + 1, 1);
        if (put < 0) {
            link_write_failed(link, (int)put);
            return link->error ? link->error : 1;
        }
        if (put == 0)
            return 1;
        link->tx_open = true;
        size_t of_head = (size_t)put < head ? (size_t)put : head;
        x->header_done += of_head;
        x->done += (size_t)put - of_head;
    }
}

void xfer_cancel_send(struct xfer *x)
{
    struct link *link = x->link;
    if (!link || x->header_done == 0 || (x->header_done == sizeof(x->header) && x->done == x->len))
        return;
    memcpy(link->debt_header, x->header, sizeof(x->header));
    link->debt_header_left = sizeof(x->header) - x->header_done;
    link->debt_zeros = x->len - x->done;
    link->tx_open = false;
    x->link = NULL;
    if (usable(link) == 0)
        link_flush_debt(link);
}

/* ---- receiving ---- */

/* Reads from the carrier. Returns the bytes read, 0: none now, -errno. Reports the end of the
 * carrier to link_broken(). */
static ssize_t read_carrier(struct link *link, void *dst, size_t n)
{
    ssize_t got = link->ops->read(link, dst, n);
    if (got < 0) {
        link_broken(link, (int)got);
        return link->error ? link->error : 0;
    }
    return got;
}

/* Reads ahead until at least n bytes are buffered: 0, 1, -errno. */
static int fill_ahead(struct link *link, size_t n)
{
    if (link->ahead_pos == link->ahead_len)
        link->ahead_pos = link->ahead_len = 0;
    while (link->ahead_len - link->ahead_pos < n) {
        if (link->ahead_pos) {
            link->ahead_len -= link->ahead_pos;
            memmove(link->ahead, link->ahead + link->ahead_pos, link->ahead_len);
            link->ahead_pos = 0;
        }
        size_t most =
            n + link->ops->ahead < sizeof(link->ahead) ? n + link->ops->ahead : sizeof(link->ahead);
        size_t room = most - link->ahead_len;
        ssize_t got = read_carrier(link, link->ahead + link->ahead_len, room);
        if (got <= 0)
            return got < 0 ? (int)got : 1;
        link->ahead_len += (size_t)got;
    }
    return 0;
}

ssize_t link_read_payload(struct link *link, void *dst, size_t n)
{
    size_t ahead = link->ahead_len - link->ahead_pos;
    ssize_t got;
    if (n > link->rx_left)
        n = (size_t)link->rx_left;
    if (ahead) {
        got = (ssize_t)(n < ahead ? n : ahead);
        memcpy(dst, link->ahead + link->ahead_pos, (size_t)got);
        link->ahead_pos += (size_t)got;
    } else {
        got = read_carrier(link, dst, n);
        if (got <= 0)
            return got;
    }
    link->rx_left -= (uint64_t)got;
    return got;
}

/* Drops the rest of a message. 0: done, 1, -errno. */
static int swallow(struct link *link)
{
    uint8_t waste[16384];
    while (link->rx_left) {
        ssize_t got = link_read_payload(link, waste, sizeof(waste));
        if (got <= 0)
            return got < 0 ? (int)got : 1;
    }
    link->rx_open = link->rx_swallow = false;
    return 0;
}

/* Handles a message of the mesh itself, which is buffered completely. */
static int take_own(struct link *link)
{
    if (link->rx.length > LINK_OWN_MAX)
        return link_nonsense(link, "sent a message of its mesh that is too long");
    int rc = fill_ahead(link, (size_t)link->rx.length);
    if (rc != 0)
        return rc;
    const uint8_t *body = link->ahead + link->ahead_pos;
    link->ahead_pos += (size_t)link->rx.length;
    link->rx_open = false;
    link->rx_left = 0;
    if (link->rx.tag == LINK_TAG_GOODBYE)
        verdict_goodbye_from(link->net, link->peer);
    else if (link->rx.tag == LINK_TAG_LOST)
        verdict_told(link->net, link->peer, body, (size_t)link->rx.length);
    else
        return link_nonsense(link, "sent a message of its mesh that is unknown");
    return 0;
}

static int parse_header(struct link *link)
{
    link->rx = get_header(link->ahead + link->ahead_pos);
    link->ahead_pos += LINK_HEADER_SIZE;
    if (link->rx.magic != LINK_MAGIC)
        return link_nonsense(link, "sent a malformed frame");
    link->rx_open = true;
    link->rx_left = link->rx.length;
    return 0;
}

int link_next_header(struct link *link)
{
    for (;;) {
        int rc = 0;
        if (link->error)
            return link->error;
        if (link->rx_open && link->rx_swallow)
            rc = swallow(link);
        else if (link->rx_open && link->rx.tag >= LINK_TAG_OWN)
            rc = take_own(link);
        else if (link->rx_open)
            return 0;
        else if ((rc = fill_ahead(link, LINK_HEADER_SIZE)) == 0)
            rc = parse_header(link);
        if (rc != 0)
            return rc;
    }
}

/* Finds the header of this message: 0, 1: not here yet, -errno. */
static int begin_recv(struct xfer *x)
{
    struct link *link = x->link;
    for (;;) {
        int rc = link_next_header(link);
        if (rc != 0)
            return rc;
        int32_t newer = (int32_t)(link->rx.generation - get_header(x->header).generation);
        if (newer > 0)
            return 1; /* the peer has cancelled the operation already; this rank will learn of it */
        if (newer == 0)
            break;
        link->rx_swallow = true;
    }
    if (link->rx.tag != x->tag || link->rx.length != x->len)
        return link_nonsense(link, "sent another message than the expected one");
    x->header_done = sizeof(x->header);
    return 0;
}

int link_peek(struct link *link, uint64_t *ret_tag, uint64_t *ret_len)
{
    int rc = usable(link);
    if (rc == 0)
        rc = link_next_header(link);
    if (rc != 0)
        return rc;
    *ret_tag = link->rx.tag;
    *ret_len = link->rx.length;
    return 0;
}

int xfer_recv(struct xfer *x)
{
    struct link *link = x->link;
    if (x->header_done == sizeof(x->header) && x->done == x->len)
        return 0;
    int rc = usable(link);
    if (rc != 0)
        return rc;
    if (x->header_done == 0) {
        rc = begin_recv(x);
        if (rc != 0)
            return rc;
    }
    while (x->done < x->len) {
        ssize_t got = link_read_payload(link, x->data + x->done, x->len - x->done);
        if (got <= 0)
            return got < 0 ? (int)got : 1;
        x->done += (size_t)got;
    }
    link->rx_open = false;
    return 0;
}

void xfer_cancel_recv(struct xfer *x)
{
    struct link *link = x->link;
    if (!link || x->header_done == 0 || x->done == x->len)
        return;
    link->rx_swallow = true;
    x->link = NULL;
}
