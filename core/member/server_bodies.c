/* SPDX-License-Identifier: Apache-2.0
 *
 * server_bodies: see server_bodies.h.
 */
#include "core/member/server_bodies.h"

#include <sys/socket.h>

#include "core/base/clock.h"

static void set_timer(struct server_bodies *all);

static void on_timer(void *arg)
{
    struct server_bodies *all = arg;
    list_for_each(pos, tmp, &all->coming)
    {
        struct server_body *body = list_entry(pos, struct server_body, node);
        if (!deadline_passed(body->by))
            break;
        all->late++;
        list_remove(&body->node);
        shutdown(body->fd, SHUT_RDWR); /* libmicrohttpd notices that, and ends the request */
    }
    set_timer(all);
}

static void set_timer(struct server_bodies *all)
{
    if (list_empty(&all->coming) || all->timer.on)
        return;
    uint64_t at = list_first(&all->coming, struct server_body, node)->by;
    loop_timer_start(all->loop, &all->timer, (uint64_t)deadline_poll_ms(at), on_timer, all);
}

void server_bodies_init(struct server_bodies *all, struct loop *loop, size_t max, size_t total)
{
    *all = (struct server_bodies){
        .loop = loop,
        .max = max,
        .limited = total > 0,
        .pods = {.total = total, .divisor = 4, .floor = max},
        .namespaces = {.total = total, .divisor = 1, .floor = max},
    };
    list_init(&all->coming);
}

void server_bodies_fini(struct server_bodies *all)
{
    if (!all->loop)
        return;
    loop_timer_stop(all->loop, &all->timer);
    shares_fini(&all->pods);
    shares_fini(&all->namespaces);
}

void server_body_begin(struct server_bodies *all, struct server_body *body,
                       const struct server_client *client, int fd)
{
    list_init(&body->node);
    if (!client || !all->limited)
        return;
    body->client = *client;
    body->fd = fd;
    body->by = deadline_in_ms(SERVER_BODY_MS);
    list_append(&all->coming, &body->node);
    set_timer(all);
}

static void release(struct server_bodies *all, struct server_body *body)
{
    if (body->client.pod[0]) {
        shares_give(&all->pods, body->client.pod, body->data.len);
        shares_give(&all->namespaces, body->client.namespace_, body->data.len);
    }
    buf_fini(&body->data);
}

static bool take_shares(struct server_bodies *all, const struct server_client *client, size_t n)
{
    if (!client->pod[0])
        return true;
    if (!shares_take(&all->pods, client->pod, n))
        return false;
    if (shares_take(&all->namespaces, client->namespace_, n))
        return true;
    shares_give(&all->pods, client->pod, n);
    return false;
}

void server_body_take(struct server_bodies *all, struct server_body *body, const char *data,
                      size_t n)
{
    if (body->too_long || body->too_many)
        return;
    body->too_long = body->data.len + n > all->max;
    body->too_many = !body->too_long && !take_shares(all, &body->client, n);
    all->too_long += body->too_long;
    if (body->too_long || body->too_many) {
        release(all, body);
        return;
    }
    size_t before = body->data.len;
    buf_put(&body->data, data, n);
    if (body->client.pod[0] && body->data.len == before) { /* no memory */
        shares_give(&all->pods, body->client.pod, n);
        shares_give(&all->namespaces, body->client.namespace_, n);
    }
}

void server_body_end(struct server_bodies *all, struct server_body *body)
{
    (void)all;
    list_remove(&body->node);
}

void server_body_fini(struct server_bodies *all, struct server_body *body)
{
    list_remove(&body->node);
    release(all, body);
}
