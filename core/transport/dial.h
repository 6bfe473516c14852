/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: connects a link to its peer: tries the addresses of the peer's card, the likeliest first
 * and each with a head start over the next. The first connection that completes the handshake is
 * used. Part of the mesh (net.h).
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

/* The peer's addresses worth trying, best first; returns how many (0..SOCK_MAX_ADDRS). own: this
 * rank's addresses with their networks. */
size_t dial_order(const struct card *mine, const struct card *peer, const struct sock_addr *own,
                  size_t nown, struct sock_addr *ret);

#endif
