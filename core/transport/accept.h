/* SPDX-License-Identifier: Apache-2.0
 *
 * accept: incoming connections that have not proven the key (auth.h) yet. Bounded in number and
 * time. Part of the mesh (net.h).
 */
#ifndef HVD_TRANSPORT_ACCEPT_H
#define HVD_TRANSPORT_ACCEPT_H

#include <stdint.h>

struct mesh_net;
struct net_watch;

/* Called when a listening socket is readable. */
void accept_tcp_ready(struct mesh_net *net, struct net_watch *w, uint32_t events);
void accept_unix_ready(struct mesh_net *net, struct net_watch *w, uint32_t events);

void accept_tick(struct mesh_net *net, uint64_t now);

/* Closes all pending connections. */
void accept_fini(struct mesh_net *net);
void accept_after_fork(struct mesh_net *net);

#endif
