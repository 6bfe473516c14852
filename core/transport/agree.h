/* SPDX-License-Identifier: Apache-2.0
 *
 * agree: every rank learns the same map: which ranks share memory. Part of mesh_create() (net.h).
 *
 * The cards say who might; each such group finds out whether it can (local.h). Its lowest rank
 * reports to rank 0, which answers, when all have reported, with the host of every rank. The lowest
 * ranks pass that on. Ranks of a group that failed get it from rank 0 themselves.
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
    int *first_of;  /* [size] lowest rank of the group, by the cards */
    bool *reported; /* [size] rank 0: of lowest ranks */
    bool *together; /* [size] rank 0: the group of this lowest rank shares memory */
    int *group;     /* [size] the ranks of this rank's group, by the cards; ngroup of them */
    int ngroup;
    uint32_t *host_of; /* [size] the map as it is made or comes */
    bool said;         /* this rank has reported */
    bool mapped;       /* rank 0: the map is on its way */
    struct buf msg;
};

int agree_init(struct agree *a, struct mesh_net *net, struct err *err);
void agree_fini(struct agree *a);

/* 0: the mesh knows its hosts, 1: call again after net_turn(), -errno. */
int agree_progress(struct agree *a, struct mesh_net *net, struct err *err);

/* Which ranks this one waits for. */
void agree_waiting(struct agree *a, struct mesh_net *net, bool *in);

/* Fills the mesh's map from the host of each rank, once. -EPROTO: hosts are not numbered by their
 * lowest rank. Foreign numbers. What a failure leaves is the mesh's to free. */
int agree_apply(struct mesh *mesh, const uint32_t *host_of, struct err *err);

#endif
