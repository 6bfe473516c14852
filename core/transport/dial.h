/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: connects a link to its peer: the addresses of the peer's card in turn, the likeliest first,
 * each with a head start; the first that completes the handshake is used. Part of the mesh (net.h).
 */
#ifndef HVD_TRANSPORT_DIAL_H
#define HVD_TRANSPORT_DIAL_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/sock.h"
#include "core/transport/card.h"

struct link;
struct mesh_net;

/* 0, or -ENOMEM. */
int dial_start(struct link *link);

void dial_tick(struct mesh_net *net, uint64_t now);
void dial_fini(struct mesh_net *net);
void dial_after_fork(struct mesh_net *net);

/* The addresses of the peer worth trying, best first; how many (0..SOCK_MAX_ADDRS). own: this
 * rank's addresses with their networks. */
size_t dial_order(const struct card *mine, const struct card *peer, const struct sock_addr *own,
                  size_t nown, struct sock_addr *ret);

#endif
