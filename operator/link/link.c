/* SPDX-License-Identifier: Apache-2.0
 *
 * link: see link.h.
 */
#include "operator/link/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/json/json.h"

#define PAUSE_MS 5     /* after a read of LINK_READ bytes */
#define STALL_MS 10000 /* the other end must take some bytes within this time */
#define HEAD     4

struct link {
    struct link_config config;
    struct loop_fd lfd;
    struct loop_timer pause, stall, breaking;
    struct buf in, out;
    size_t sent; /* bytes of out that the socket has taken */
    bool paused, is_broken, closed;
    int depth; /* nested calls of config.message() and config.broken() */
    char why[256];
};

static void destroy(struct link *l)
{
    buf_fini(&l->in);
    buf_fini(&l->out);
    free(l);
}

static void leave(struct link *l)
{
    if (--l->depth == 0 && l->closed)
        destroy(l);
}

static void on_breaking(void *arg)
{
    struct link *l = arg;
    l->depth++;
    l->config.broken(l->config.arg, l->why);
    leave(l);
}

/* Reports the end from the loop, because the caller may be inside of link_send(). */
static void break_off(struct link *l, const char *why)
{
    if (l->is_broken || l->closed)
        return;
    l->is_broken = true;
    snprintf(l->why, sizeof(l->why), "%s", why);
    loop_fd_stop(l->config.loop, &l->lfd);
    loop_timer_stop(l->config.loop, &l->pause);
    loop_timer_stop(l->config.loop, &l->stall);
    loop_timer_start(l->config.loop, &l->breaking, 0, on_breaking, l);
}

static void set_events(struct link *l)
{
    bool more = l->out.len > l->sent;
    if (!l->is_broken && !l->closed)
        loop_fd_set(l->config.loop, &l->lfd, (l->paused ? 0 : EPOLLIN) | (more ? EPOLLOUT : 0));
}

/* ---- sending --------------------------------------------------------------------------------- */

static void on_stall(void *arg)
{
    break_off(arg, "the other end has taken nothing for 10 s");
}

static void flush(struct link *l)
{
    size_t before = l->sent;
    while (l->sent < l->out.len) {
        ssize_t n = send(l->config.fd, l->out.data + l->sent, l->out.len - l->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            break_off(l, strerror(errno));
            return;
        }
        l->sent += (size_t)n;
    }
    if (l->sent == l->out.len) {
        buf_fini(&l->out);
        l->sent = 0;
        loop_timer_stop(l->config.loop, &l->stall);
    } else if (l->sent > before || !l->stall.on) {
        loop_timer_start(l->config.loop, &l->stall, STALL_MS, on_stall, l);
    }
    set_events(l);
}

int link_send(struct link *l, json_t *message)
{
    auto_free char *text = l->is_broken ? NULL : json_write(message);
    size_t n = text ? strlen(text) : 0;
    bool idle = l->out.len == 0;
    json_decref(message);
    if (l->is_broken)
        return -EPIPE;
    if (n > LINK_FRAME_MAX)
        return -EMSGSIZE;
    if (text && l->out.len - l->sent + n <= LINK_QUEUE_MAX) {
        buf_put_u32(&l->out, (uint32_t)n);
        buf_put(&l->out, text, n);
    } else if (text) {
        break_off(l, "the other end takes messages too slowly");
        return -EPIPE;
    }
    if (!text || l->out.failed) {
        break_off(l, "no memory for a message");
        return -ENOMEM;
    }
    if (idle)
        set_events(l);
    return 0;
}

void link_push(struct link *l)
{
    if (!l->is_broken && l->out.len > 0)
        flush(l);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int take(struct link *l, const char *text, size_t n, struct err *err)
{
    auto_json json_t *j = NULL;
    int rc = json_read(text, n, "a message", &j, err);
    const char *type = rc == 0 ? json_string_value(json_object_get(j, "type")) : NULL;
    if (rc == 0 && !type)
        rc = err_set(err, EPROTO, "a message without a type");
    return rc < 0 ? rc : l->config.message(l->config.arg, type, j, err);
}

static void take_all(struct link *l)
{
    size_t at = 0;
    while (!l->is_broken && !l->closed && l->in.len - at >= HEAD) {
        struct reader head = reader_over(l->in.data + at, HEAD);
        struct err err = {0};
        size_t n = reader_u32(&head);
        if (n == 0 || n > LINK_FRAME_MAX) {
            break_off(l, "it sent a frame that is empty or too long");
            break;
        }
        if (l->in.len - at < HEAD + n)
            break;
        int rc = take(l, (const char *)l->in.data + at + HEAD, n, &err);
        at += HEAD + n;
        if (rc < 0)
            break_off(l, err_text(&err));
    }
    buf_consume(&l->in, at);
    if (l->in.len == 0)
        buf_fini(&l->in);
}

static void on_pause(void *arg)
{
    struct link *l = arg;
    l->paused = false;
    set_events(l);
}

static void receive(struct link *l)
{
    uint8_t *room = buf_reserve(&l->in, LINK_READ);
    ssize_t n = room ? recv(l->config.fd, room, LINK_READ, 0) : -1;
    if (!room)
        break_off(l, "no memory for a message");
    else if (n == 0)
        break_off(l, "the other end has closed the connection");
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        break_off(l, strerror(errno));
    if (n <= 0)
        return;
    l->in.len += (size_t)n;
    if ((size_t)n == LINK_READ) {
        l->paused = true;
        loop_timer_start(l->config.loop, &l->pause, PAUSE_MS, on_pause, l);
    }
    take_all(l);
    set_events(l);
}

static void on_events(void *arg, uint32_t events)
{
    struct link *l = arg;
    l->depth++;
    if (events & EPOLLOUT)
        flush(l);
    if (!l->is_broken && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        receive(l);
    leave(l);
}

/* ---- life ------------------------------------------------------------------------------------ */

int link_open(struct link **ret, const struct link_config *config, struct err *err)
{
    struct link *l = calloc(1, sizeof(*l));
    int rc = l ? 0 : err_set(err, ENOMEM, "no memory for the plane's socket");
    if (l) {
        l->config = *config;
        fd_set_nonblock(config->fd);
        rc = loop_fd_start(config->loop, &l->lfd, config->fd, EPOLLIN, on_events, l);
        if (rc < 0)
            err_sys(err, -rc, "the plane's socket");
    }
    if (rc < 0) {
        close(config->fd);
        free(l);
        return rc;
    }
    *ret = l;
    return 0;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    loop_fd_stop(l->config.loop, &l->lfd);
    loop_timer_stop(l->config.loop, &l->pause);
    loop_timer_stop(l->config.loop, &l->stall);
    loop_timer_stop(l->config.loop, &l->breaking);
    close(l->config.fd);
    l->closed = true;
    if (l->depth == 0)
        destroy(l);
}
