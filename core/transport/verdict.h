/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict: decides which peer was lost and why, and tells the other ranks; also handles peers that
 * left in order. Part of the mesh (net.h). The end of a TCP connection alone does not show the
 * reason: the peer may have been lost, or may have closed it because another rank was. So the
 * verdict waits a moment for a better explanation: from the agent, the ranks of this host, or the
 * peer's last message. A report of the kernel about a local rank, of an agent, or in a peer's
 * message is final at once.
 */
#ifndef HVD_TRANSPORT_VERDICT_H
#define HVD_TRANSPORT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/net.h"

/* A connection to the peer ended with rc, without a goodbye on it. */
void verdict_connection_lost(struct mesh_net *net, int peer, int rc);

/* The peer was lost; text says how, to follow "rank N ". */
void verdict_dead(struct mesh_net *net, int peer, const char *text);

/* The peer could not be reached at all; text is the whole sentence. */
void verdict_unreachable(struct mesh_net *net, int peer, const char *text);

/* The agent's socket was closed. */
void verdict_agent_lost(struct mesh_net *net);

/* Returns whether rc means that this rank, not a peer, cannot continue: it is out of memory or
 * descriptors. */
bool verdict_is_own(int rc);

/* Fails this rank with rc, even if no peer can be notified: mesh_progress() returns rc. */
void verdict_out_of(struct mesh_net *net, int rc);

/* Handles the body of a CTL_LOST from the agent (from: -1) or of the same message from a rank.
 * Untrusted bytes. */
void verdict_told(struct mesh_net *net, int from, const void *body, size_t len);

void verdict_goodbye_from(struct mesh_net *net, int peer);

/* Reads the goodbyes in the segment. Call before the end of a connection or process is judged. */
void verdict_look_for_goodbyes(struct mesh_net *net);

void verdict_tick(struct mesh_net *net, uint64_t now);

/* Checks the abort word, and makes the verdict final when it is due: tells the other ranks and
 * closes everything. 0; -ECONNRESET: a rank was lost; else the rc of verdict_out_of(). */
int verdict_check(struct mesh_net *net);

/* This rank gives up; why: the reason, which its peers are told. */
void verdict_abort(struct mesh_net *net, const char *why);

#endif
