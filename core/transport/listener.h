/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: the sockets that peers connect to. They are open before the cards are sent, until the
 * mesh is destroyed. Made by mesh_listen(), owned by the mesh from mesh_create() on.
 */
#ifndef HVD_TRANSPORT_LISTENER_H
#define HVD_TRANSPORT_LISTENER_H

#include <stddef.h>

#include "core/base/sock.h"
#include "core/transport/card.h"
#include "core/transport/net.h"

struct mesh_listener {
    struct net_watch tcp[SOCK_MAX_ADDRS];
    size_t ntcp;
    struct net_watch local; /* abstract Unix socket; fd -1: none */
    struct card card;
};

/* Adds the sockets to the mesh's epoll set. */
int listener_start(struct mesh_net *net);

/* Connects to the abstract socket of the rank whose card it is; the descriptor or -errno. */
int listener_dial_local(const struct card *card);

#endif
