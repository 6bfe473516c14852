/* SPDX-License-Identifier: Apache-2.0
 *
 * message: whole messages over a control link (link.h), queued in both directions.
 */
#include <errno.h>
#include <string.h>

#include "core/transport/link_private.h"

/* Bytes of unread messages that are queued here; more stays in the socket. */
#define QUEUE_MAX (2 * (size_t)LINK_MESSAGE_MAX)
#define READ_STEP 65536
#define KEEP_MAX  (1u << 20)

int link_post(struct link *link, const void *msg, size_t len)
{
    uint8_t header[LINK_HEADER_SIZE];
    if (len > LINK_MESSAGE_MAX)
        return -EMSGSIZE;
    if (link->error)
        return link->error;
    size_t before = link->out.len;
    link_put_header(header, link->net->mesh->generation, 0, len);
    buf_put(&link->out, header, sizeof(header));
    if (len)
        buf_put(&link->out, msg, len);
    if (link->out.failed) {
        link->out.len = before;
        link->out.failed = false;
        return -ENOMEM;
    }
    int rc = link_flush(link);
    return rc < 0 ? rc : 0;
}

/* Frees a buffer that has grown for one big message. */
static void drained(struct buf *b)
{
    if (b->cap > KEEP_MAX)
        buf_fini(b);
    else
        buf_reset(b);
}

int link_flush(struct link *link)
{
    while (link->out_done < link->out.len) {
        if (link->error)
            return link->error;
        if (!link->ops || link->gone)
            return 1;
        struct iovec iov = {link->out.data + link->out_done, link->out.len - link->out_done};
        ssize_t put = link->ops->write(link, &iov, 1);
        if (put < 0) {
            link_write_failed(link, (int)put);
            return link->error ? link->error : 1;
        }
        if (put == 0)
            return 1;
        link->out_done += (size_t)put;
    }
    link->out_done = 0;
    drained(&link->out);
    return link->error;
}

/* Appends the available part of the current message. 0: it is complete, 1, -errno. */
static int pull_payload(struct link *link)
{
    while (link->rx_left) {
        size_t n = link->rx_left < READ_STEP ? (size_t)link->rx_left : READ_STEP;
        uint8_t *dst = buf_reserve(&link->in, n);
        if (!dst)
            return -ENOMEM;
        ssize_t got = link_read_payload(link, dst, n);
        if (got <= 0)
            return got < 0 ? (int)got : 1;
        link->in.len += (size_t)got;
    }
    link->rx_open = false;
    return 0;
}

static int pull_one(struct link *link)
{
    bool begun = link->rx_open && link->rx.tag < LINK_TAG_OWN;
    int rc = link_next_header(link);
    if (rc != 0)
        return rc;
    if (!begun) {
        if (link->rx.tag != 0 || link->rx.length > LINK_MESSAGE_MAX)
            return link_nonsense(link, "sent a control message that is too long");
        buf_put_u32(&link->in, (uint32_t)link->rx.length);
        if (link->in.failed)
            return -ENOMEM;
    }
    return pull_payload(link);
}

void link_pull(struct link *link)
{
    int rc = 0;
    while (rc == 0 && link->in.len < QUEUE_MAX && link->ops && !link->gone && !link->error)
        rc = pull_one(link);
    if (rc == -ENOMEM && !link->error)
        link->error = rc;
    if (rc != 0)
        link->readable = false;
}

/* The length of the first message in the queue; -1: it is not complete. */
static ssize_t first_length(const struct link *link)
{
    struct reader r = reader_over(link->in.data, link->in.len);
    uint32_t len = reader_u32(&r);
    if (r.failed || link->in.len - r.pos < len)
        return -1;
    return (ssize_t)len;
}

int link_take(struct link *link, struct buf *msg)
{
    ssize_t len = first_length(link);
    if (len < 0) {
        if (link->ops && (link->readable || !link->ops->wakes))
            link_pull(link);
        len = first_length(link);
    }
    if (len < 0)
        return link->error ? link->error : 1;
    buf_reset(msg);
    buf_put(msg, link->in.data + 4, (size_t)len);
    if (msg->failed)
        return -ENOMEM;
    if (link->in.len == 4 + (size_t)len)
        drained(&link->in);
    else
        buf_consume(&link->in, 4 + (size_t)len);
    return 0;
}
