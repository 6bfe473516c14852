/* SPDX-License-Identifier: Apache-2.0
 *
 * card: what a rank sends to all others during bootstrap: its identity, where it runs, where it
 * listens. Made by mesh_listen(), read by mesh_create(). Two ranks that run in the same place may
 * be able to share memory; local.h tests it. Cards of other ranks are untrusted bytes.
 */
#ifndef HVD_TRANSPORT_CARD_H
#define HVD_TRANSPORT_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/sock.h"

#define CARD_VERSION   1
#define CARD_UID_SIZE  16
#define CARD_BYTES_MAX (74 + 20 * SOCK_MAX_ADDRS) /* that card_encode() writes */

enum card_flag {
    CARD_SHM = 1 << 0,  /* the rank wants to share memory */
    CARD_UNIX = 1 << 1, /* the rank listens on an abstract Unix socket named after uid */
};

struct card {
    uint8_t uid[CARD_UID_SIZE]; /* random, new in each mesh_listen() */
    uint8_t boot_id[16];        /* boot id of the kernel; zeros: unknown */
    uint64_t netns, pidns;      /* inodes of the namespaces; 0: unknown */
    uint64_t agent; /* pid in pidns of the process at the other end of agent_fd; 0: no agent */
    uint64_t split; /* hash of HVD_LOCALITY: ranks with different values never share memory */
    uint32_t user;
    uint32_t flags;
    size_t naddrs;
    struct sock_addr addrs[SOCK_MAX_ADDRS]; /* with ports; best first */
};

/* Fills everything but flags and addrs. agent_fd: -1 without one. */
void card_fill(struct card *card, int agent_fd);

/* Fills a card of the process that has `own`, without an agent and addresses, for another mesh. */
void card_within(struct card *card, const struct card *own);

void card_encode(const struct card *card, struct buf *out);

/* -EPROTO with the reason in err. */
int card_decode(const void *data, size_t len, struct card *ret, struct err *err);

/* Returns whether ranks a and b may share memory: they can pass its descriptor over their common
 * agent's socket or, without an agent, over an abstract Unix socket. */
bool card_same_host(const struct card *a, const struct card *b);

#endif
