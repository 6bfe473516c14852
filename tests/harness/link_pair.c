/* SPDX-License-Identifier: Apache-2.0
 *
 * link_pair: see link_pair.h.
 */
#include "tests/harness/link_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void must(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    abort();
}

static void side_init(struct link_side *s, int rank)
{
    *s = (struct link_side){.mesh = {.rank = rank, .size = 2, .generation = 1, .net = &s->net}};
    s->net = (struct mesh_net){.mesh = &s->mesh,
                               .timer_at = UINT64_MAX,
                               .suspect = -1,
                               .links = s->links,
                               .left = s->left,
                               .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                               .wake = {.fd = eventfd(0, EFD_CLOEXEC)},
                               .timer = {.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)},
                               .agent_watch = {.fd = -1}};
    list_init(&s->net.pending);
    list_init(&s->net.dials);
    must(net_watch(&s->net, &s->net.timer, EPOLLIN) == 0, "link_pair: watch");
}

static void side_fini(struct link_side *s)
{
    for (int i = 0; i < 2 * LINK_CLASSES; i++)
        link_destroy(s->links[i]);
    net_unwatch(&s->net, &s->net.wake);
    net_unwatch(&s->net, &s->net.timer);
    close(s->net.epoll_fd);
}

static void connect_two(int ret[2])
{
    struct sock_addr a;
    int small = 65536;
    must(sock_parse_ip("127.0.0.1", &a, NULL) == 0, "link_pair: address");
    int listener = sock_listen(&a, 1);
    must(listener >= 0, "link_pair: listen");
    ret[0] = sock_connect(&a);
    must(ret[0] >= 0, "link_pair: connect");
    while (sock_connected(ret[0]) == 1)
        usleep(100);
    while ((ret[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
        usleep(100);
    close(listener);
    for (int i = 0; i < 2; i++) {
        setsockopt(ret[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        setsockopt(ret[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    }
}

void link_pair_init_apart(struct link_pair *p, enum link_class cls, int ret_fds[2])
{
    side_init(&p->a, 0);
    side_init(&p->b, 1);
    connect_two(ret_fds);
    p->a.link = link_get(&p->a.net, 1, cls);
    p->b.link = link_get(&p->b.net, 0, cls);
    must(p->a.link && p->b.link, "link_pair: link");
}

void link_pair_init(struct link_pair *p, enum link_class cls)
{
    int fds[2];
    link_pair_init_apart(p, cls, fds);
    link_established(p->a.link, fds[0]);
    link_established(p->b.link, fds[1]);
}

void link_pair_fini(struct link_pair *p)
{
    side_fini(&p->a);
    side_fini(&p->b);
}

int link_pair_turn(struct link_pair *p)
{
    int rc = mesh_progress(&p->a.mesh, NULL, NULL);
    return rc != 0 ? rc : mesh_progress(&p->b.mesh, NULL, NULL);
}

void link_pair_next_generation(struct link_pair *p)
{
    mesh_next_generation(&p->a.mesh);
    mesh_next_generation(&p->b.mesh);
}

uint8_t *link_pair_bytes(size_t n, unsigned seed)
{
    uint8_t *p = malloc(n + 1);
    must(p != NULL, "link_pair: bytes");
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 13 + i / 255 + seed);
    return p;
}
