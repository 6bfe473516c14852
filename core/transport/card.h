/* SPDX-License-Identifier: Apache-2.0
 *
 * card: what a rank tells all others in bootstrap: who it is, where it runs, where it listens.
 *
 * Made by mesh_listen(), read by mesh_create(). Equal places make two ranks candidates for sharing
 * memory; whether they do is proven afterwards (local.h). A card that came from another rank is
 * foreign bytes.
 */
#ifndef HVD_TRANSPORT_CARD_H
#define HVD_TRANSPORT_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/sock.h"

#define CARD_VERSION  1
#define CARD_UID_SIZE 16

enum card_flag {
    CARD_SHM = 1 << 0,  /* wants to share memory */
    CARD_UNIX = 1 << 1, /* listens on an abstract Unix socket named after uid */
};

struct card {
    uint8_t uid[CARD_UID_SIZE]; /* random, of this mesh_listen() */
    uint8_t boot_id[16];        /* of the kernel; zeros: not known */
    uint64_t netns, pidns;      /* inodes of the namespaces, 0: not known */
    uint64_t agent; /* which process of pidns holds the other end of agent_fd; 0: none */
    uint64_t split; /* hash of HVD_LOCALITY: ranks that differ never share memory */
    uint32_t user;
    uint32_t flags;
    size_t naddrs;
    struct sock_addr addrs[SOCK_MAX_ADDRS]; /* with ports; best first */
};

/* Fills everything but flags and addrs. agent_fd: -1 without one. */
void card_fill(struct card *card, int agent_fd);

void card_encode(const struct card *card, struct buf *out);

/* -EPROTO with the reason in err. */
int card_decode(const void *data, size_t len, struct card *ret, struct err *err);

/* The two may share memory, by way of their agent or of an abstract socket. */
bool card_same_host(const struct card *a, const struct card *b);

#endif
