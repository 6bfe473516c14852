/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: see listener.h.
 */
#include "core/transport/listener.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/log.h"
#include "core/boot/boot.h"
#include "core/transport/accept.h"

/* "@hvd-" and a name that only ranks with the card know. Connections must prove the key anyway. */
static socklen_t local_name(const struct card *card, struct sockaddr_un *sun)
{
    static const uint8_t no_key[MAC_KEY_SIZE];
    const struct mac_part part = {card->uid, sizeof(card->uid)};
    uint8_t mac[MAC_SIZE];
    mac_make(no_key, "hvd local name", &part, 1, mac);
    *sun = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t len = (size_t)snprintf(sun->sun_path + 1, sizeof(sun->sun_path) - 1, "hvd-");
    for (size_t i = 0; i < 16; i++)
        len += (size_t)snprintf(sun->sun_path + 1 + len, sizeof(sun->sun_path) - 1 - len, "%02x",
                                mac[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static int open_local(struct mesh_listener *l, int backlog)
{
    struct sockaddr_un sun;
    socklen_t len = local_name(&l->card, &sun);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sun, len) < 0 || listen(fd, backlog) < 0)
        return -errno;
    l->local.fd = take_fd(&fd);
    return 0;
}

int listener_dial_local(const struct card *card)
{
    struct sockaddr_un sun;
    socklen_t len = local_name(card, &sun);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sun, len) < 0)
        return -errno;
    return take_fd(&fd);
}

/* The host of HVD_RENDEZVOUS, where peers probably are. */
static const char *rendezvous_host(char host[SOCK_HOST_MAX])
{
    uint16_t port;
    const char *text = env_get("RENDEZVOUS");
    if (text && sock_split(text, host, &port, NULL) == 0)
        return host;
    return NULL;
}

static int choose_addrs(const struct boot *boot, struct sock_addr *addrs, size_t *ret_n,
                        struct err *err)
{
    bool insecure;
    char host[SOCK_HOST_MAX];
    int rc = env_bool("INSECURE", false, &insecure, err);
    if (rc < 0)
        return rc;
    if (boot->has_key || insecure)
        return sock_candidates(env_get("IFACE"), rendezvous_host(host), addrs, ret_n, err);
    rc = sock_parse_ip("127.0.0.1/8", &addrs[0], err);
    *ret_n = 1;
    return rc;
}

static int open_tcp(struct mesh_listener *l, struct sock_addr *addrs, size_t n, int backlog,
                    struct err *err)
{
    char text[SOCK_TEXT_MAX] = "";
    int last = -EADDRNOTAVAIL;
    for (size_t i = 0; i < n; i++) {
        int fd = sock_listen(&addrs[i], backlog);
        sock_text(&addrs[i], text);
        if (fd < 0) {
            log_debug("cannot listen on %s: %s", text, strerror(-fd));
            last = fd;
            continue;
        }
        log_line(LOG_INFO, "listening on %s", text);
        l->card.addrs[l->ntcp] = addrs[i];
        l->tcp[l->ntcp++].fd = fd;
    }
    l->card.naddrs = l->ntcp;
    return l->ntcp ? 0 : err_sys(err, -last, "cannot listen on %s", text);
}

static int backlog_of(const struct boot *boot)
{
    return 2 * boot->size < 4096 ? 2 * boot->size + 16 : 4096;
}

static struct mesh_listener *new_listener(struct err *err)
{
    struct mesh_listener *l = calloc(1, sizeof(*l));
    if (l)
        l->local.fd = -1;
    else
        err_set(err, ENOMEM, "out of memory");
    return l;
}

/* shm: ranks of this host may share memory. */
static void offer_memory(struct mesh_listener *l, const struct boot *boot, bool others, bool shm)
{
    if (shm)
        l->card.flags |= CARD_SHM;
    if (others && shm && open_local(l, backlog_of(boot)) == 0)
        l->card.flags |= CARD_UNIX;
}

/* rc: of the steps before. */
static int finish(struct mesh_listener *l, int rc, struct mesh_listener **ret, struct buf *ret_card,
                  struct err *err)
{
    if (rc == 0)
        card_encode(&l->card, ret_card);
    if (rc == 0 && ret_card->failed)
        rc = err_set(err, ENOMEM, "out of memory");
    if (rc == 0)
        *ret = l;
    else
        mesh_listener_destroy(l);
    return rc;
}

int mesh_listen(const struct boot *boot, struct mesh_listener **ret, struct buf *ret_card,
                struct err *err)
{
    struct sock_addr addrs[SOCK_MAX_ADDRS];
    size_t n = 0;
    bool shm;
    int rc = env_bool("SHM", true, &shm, err);
    if (rc < 0)
        return rc;
    struct mesh_listener *l = new_listener(err);
    if (!l)
        return -ENOMEM;
    card_fill(&l->card, boot->agent_fd);
    bool others = boot->size > 1 || boot->elastic; /* as far as is known now */
    if (others)
        rc = choose_addrs(boot, addrs, &n, err);
    if (others && rc == 0)
        rc = open_tcp(l, addrs, n, backlog_of(boot), err);
    if (rc == 0)
        offer_memory(l, boot, others, shm);
    return finish(l, rc, ret, ret_card, err);
}

int mesh_listen_within(const struct mesh *mesh, const struct boot *boot, struct mesh_listener **ret,
                       struct buf *ret_card, struct err *err)
{
    const struct card *own = &mesh->net->cards[mesh->rank];
    struct mesh_listener *l = new_listener(err);
    if (!l)
        return -ENOMEM;
    card_within(&l->card, own);
    bool others = boot->size > 1;
    int rc = 0;
    offer_memory(l, boot, others, own->flags & CARD_SHM);
    if (others) {
        struct sock_addr addrs[SOCK_MAX_ADDRS];
        memcpy(addrs, own->addrs, sizeof(addrs));
        for (size_t i = 0; i < own->naddrs; i++)
            addrs[i].port = 0;
        rc = open_tcp(l, addrs, own->naddrs, backlog_of(boot), err);
    }
    return finish(l, rc, ret, ret_card, err);
}

void mesh_close_listener(struct mesh *mesh)
{
    struct mesh_net *net = mesh->net;
    struct mesh_listener *l = net->listener;
    for (size_t i = 0; l && i < l->ntcp; i++)
        net_unwatch(net, &l->tcp[i]);
    if (l && l->local.fd >= 0)
        net_unwatch(net, &l->local);
    if (l)
        l->ntcp = 0;
}

int listener_start(struct mesh_net *net)
{
    struct mesh_listener *l = net->listener;
    int rc = 0;
    for (size_t i = 0; i < l->ntcp && rc == 0; i++) {
        l->tcp[i].ready = accept_tcp_ready;
        rc = net_watch(net, &l->tcp[i], EPOLLIN);
    }
    l->local.ready = accept_unix_ready;
    if (rc == 0 && l->local.fd >= 0)
        rc = net_watch(net, &l->local, EPOLLIN);
    return rc;
}

void mesh_listener_after_fork(struct mesh_listener *l)
{
    for (size_t i = 0; l && i < l->ntcp; i++)
        close(l->tcp[i].fd);
    if (l && l->local.fd >= 0)
        close(l->local.fd);
    if (l) {
        l->ntcp = 0;
        l->local.fd = -1;
    }
}

void mesh_listener_destroy(struct mesh_listener *l)
{
    mesh_listener_after_fork(l);
    free(l);
}
