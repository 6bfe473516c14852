/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict: a peer was lost: which one, how is it known, who must be told. Or it left in order. Part
 * of the mesh (net.h).
 *
 * The end of a TCP connection says little: the peer may have died or may have closed it because
 * another one did. So the verdict waits a moment for better news: from the agent, from the ranks of
 * this host, or from the peer's last message. The kernel's word on a local rank, an agent's word
 * and a peer's message count at once.
 */
#ifndef HVD_TRANSPORT_VERDICT_H
#define HVD_TRANSPORT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/net.h"

/* A connection to the peer ended with rc, and it had not said goodbye on it. */
void verdict_connection_lost(struct mesh_net *net, int peer, int rc);

/* The peer is dead; text: how, in words that follow "rank N ". */
void verdict_dead(struct mesh_net *net, int peer, const char *text);

/* peer could not be reached at all; text is the whole sentence. */
void verdict_unreachable(struct mesh_net *net, int peer, const char *text);

/* The agent's socket has ended. */
void verdict_agent_lost(struct mesh_net *net);

/* rc says that it is this rank that cannot go on, no peer: memory or descriptors are out. */
bool verdict_is_own(int rc);

/* This rank gives up for that, also where nobody could be told: mesh_progress() answers rc. */
void verdict_out_of(struct mesh_net *net, int rc);

/* The body of a CTL_LOST from the agent (from: -1) or of the same from a rank. Foreign bytes. */
void verdict_told(struct mesh_net *net, int from, const void *body, size_t len);

void verdict_goodbye_from(struct mesh_net *net, int peer);

/* Takes the farewells that stand in the segment. Before anything is concluded from an end. */
void verdict_look_for_goodbyes(struct mesh_net *net);

void verdict_tick(struct mesh_net *net, uint64_t now);

/* Looks at the abort word; makes the verdict final when it is due, which tells the others and
 * closes everything. 0, -ECONNRESET or -ENOMEM. */
int verdict_check(struct mesh_net *net);

/* This rank gives up. */
void verdict_abort(struct mesh_net *net, const char *why);

#endif
