/* SPDX-License-Identifier: Apache-2.0
 *
 * agree: distributes a map of which ranks share memory, the same on every rank. Part of
 * mesh_create() (net.h). The cards show which ranks might share memory; each such group tests it
 * (local.h). Its lowest rank reports to rank 0. When all have reported, rank 0 answers with the
 * host of every rank, and the lowest ranks forward this map. Ranks of a group that failed get it
 * from rank 0 directly.
 */
#ifndef HVD_TRANSPORT_AGREE_H
#define HVD_TRANSPORT_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/transport/net.h"

struct agree {
    int *first_of;  /* [size] lowest rank of each rank's group, by the cards */
    bool *reported; /* [size] on rank 0: which lowest ranks have reported */
    bool *together; /* [size] on rank 0: the group of this lowest rank shares memory */
    int *group;     /* [ngroup] the ranks of this rank's group, by the cards */
    int ngroup;
    uint32_t *host_of; /* [size] the map, being made or received */
    bool said;         /* this rank has reported */
    bool mapped;       /* on rank 0: the map is being sent */
    struct buf msg;
};

int agree_init(struct agree *a, struct mesh_net *net, struct err *err);
void agree_fini(struct agree *a);

/* 0: the mesh knows its hosts, 1: call again after net_turn(), -errno. */
int agree_progress(struct agree *a, struct mesh_net *net, struct err *err);

/* Sets in[] for the ranks that this rank waits for. */
void agree_waiting(struct agree *a, struct mesh_net *net, bool *in);

/* Fills the mesh's map from the host of each rank, once. The numbers are untrusted: -EPROTO
 * unless hosts are numbered by their lowest rank. What a failure has allocated is freed with the
 * mesh. */
int agree_apply(struct mesh *mesh, const uint32_t *host_of, struct err *err);

#endif
