/* SPDX-License-Identifier: Apache-2.0
 *
 * accept: connections that came in and have to prove themselves (auth.h) before they are anything.
 * Bounded in number and time. Part of the mesh (net.h).
 */
#ifndef HVD_TRANSPORT_ACCEPT_H
#define HVD_TRANSPORT_ACCEPT_H

#include <stdint.h>

struct mesh_net;
struct net_watch;

/* The ready functions of listening sockets. */
void accept_tcp_ready(struct mesh_net *net, struct net_watch *w, uint32_t events);
void accept_unix_ready(struct mesh_net *net, struct net_watch *w, uint32_t events);

void accept_tick(struct mesh_net *net, uint64_t now);

/* Closes what is unproven. */
void accept_fini(struct mesh_net *net);
void accept_after_fork(struct mesh_net *net);

#endif
