/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast: sends the root's data to all ranks down a tree: from the root to one rank of each
 * other host, and from there to the ranks of the host; both are binomial trees. First each rank
 * sends an empty message up the tree, so that no rank finishes, and no output is written, before
 * all have started. Then the data goes down as one message, forwarded while it arrives.
 */
#include <string.h>

#include "core/coll/algorithms.h"

#define MAX_CHILDREN 24 /* two binomial trees of up to 4096 nodes */

struct broadcast {
    int parent; /* rank, -1 on the root */
    int nchildren;
    int children[MAX_CHILDREN]; /* ranks; large subtrees first */
    struct message from_child[MAX_CHILDREN], to_child[MAX_CHILDREN];
    struct message up, down;
    int waiting; /* children whose subtree has not started yet */
    bool told;   /* the parent has been told that this subtree has started */
    bool received;
    int unsent; /* children that have not got all data yet */
};

static bool broadcast_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_BROADCAST;
}

/* The rank that receives for a host: the root for its own host, else the first rank. */
static int head_of(const struct mesh *mesh, int host, int root)
{
    return mesh->host_of[root] == host ? root : mesh_rank_at(mesh, host, 0);
}

/* The node at position v of the binomial tree of a host, or of all hosts; position 0 is its
 * root. */
static int host_at(const struct mesh *mesh, int v, int root)
{
    return (mesh->host_of[root] + v) % mesh->hosts;
}

static int local_at(const struct mesh *mesh, int host, int v, int root)
{
    int top = mesh->local_of[head_of(mesh, host, root)];
    return mesh_rank_at(mesh, host, (top + v) % mesh->local_size_of[host]);
}

static int add_child(struct broadcast *b, int rank)
{
    if (b->nchildren == MAX_CHILDREN)
        return -E2BIG;
    b->children[b->nchildren++] = rank;
    return 0;
}

/* The children of position v among n are v + 2^i for each 2^i below v's lowest set bit. */
static int lowest_bit(int v, int n)
{
    int bit = 1;
    while (bit < n && !(v & bit))
        bit *= 2;
    return bit;
}

static int find_place(struct broadcast *b, const struct mesh *mesh, int root)
{
    int host = mesh->host, hosts = mesh->hosts, rc = 0;
    int head = head_of(mesh, host, root);
    b->parent = -1;
    b->nchildren = 0;
    if (mesh->rank == head) {
        int v = (host - mesh->host_of[root] + hosts) % hosts;
        int bit = lowest_bit(v, hosts);
        if (v > 0)
            b->parent = head_of(mesh, host_at(mesh, v - bit, root), root);
        for (bit /= 2; bit > 0 && rc == 0; bit /= 2)
            if (v + bit < hosts)
                rc = add_child(b, head_of(mesh, host_at(mesh, v + bit, root), root));
    }
    int n = mesh->local_size;
    int v = (mesh->local_rank - mesh->local_of[head] + n) % n;
    int bit = lowest_bit(v, n);
    if (v > 0)
        b->parent = local_at(mesh, host, v - bit, root);
    for (bit /= 2; bit > 0 && rc == 0; bit /= 2)
        if (v + bit < n)
            rc = add_child(b, local_at(mesh, host, v + bit, root));
    return rc;
}

static int broadcast_start(struct coll *coll, void *state, struct err *err)
{
    struct broadcast *b = state;
    const struct coll_op *op = coll->op;
    const struct mesh *mesh = coll->mesh;
    int rc = find_place(b, mesh, op->root);
    if (rc < 0)
        return err_set(err, -rc, "broadcast: too many ranks");
    bool is_root = b->parent < 0;
    size_t len = op->tensors[0].count * hvd_dtype_size(op->dtype);
    void *data = is_root ? (void *)op->tensors[0].in : op->tensors[0].out;
    for (int i = 0; i < b->nchildren; i++) {
        struct link *link = coll_link(coll, b->children[i]);
        if (!link)
            return err_set(err, ENOMEM, "no memory for a broadcast");
        message_start(&b->from_child[i], link, coll_tag(coll, 0, 0), NULL, 0);
        message_start(&b->to_child[i], link, coll_tag(coll, 1, 0), data, len);
    }
    struct link *parent = is_root ? NULL : coll_link(coll, b->parent);
    if (!is_root && !parent)
        return err_set(err, ENOMEM, "no memory for a broadcast");
    if (!is_root) {
        message_start(&b->up, parent, coll_tag(coll, 0, 0), NULL, 0);
        message_start(&b->down, parent, coll_tag(coll, 1, 0), data, len);
    }
    b->waiting = b->unsent = b->nchildren;
    b->told = b->received = is_root;
    return 0;
}

/* The way up: 0 when this subtree has started and the parent has been told. */
static int gather(struct broadcast *b)
{
    int rc;
    for (int i = 0; i < b->nchildren; i++) {
        if (!b->from_child[i].active)
            continue;
        if ((rc = message_recv(&b->from_child[i])) < 0)
            return rc;
        b->waiting -= rc == 0;
    }
    if (b->waiting > 0)
        return 1;
    if (!b->told) {
        if ((rc = message_send(&b->up, 0)) < 0)
            return rc;
        b->told = rc == 0;
    }
    return b->told ? 0 : 1;
}

/* Forwards the data that is here; 0 when all children have all of it. */
static int scatter(struct broadcast *b, size_t ready)
{
    for (int i = 0; i < b->nchildren; i++) {
        if (!b->to_child[i].active)
            continue;
        int rc = message_send(&b->to_child[i], ready);
        if (rc < 0)
            return rc;
        b->unsent -= rc == 0;
    }
    return b->unsent > 0 ? 1 : 0;
}

static int broadcast_progress(struct coll *coll, void *state)
{
    struct broadcast *b = state;
    const struct coll_tensor *t = &coll->op->tensors[0];
    int rc = gather(b);
    if (rc != 0)
        return rc;
    if (b->parent < 0) {
        size_t len = t->count * hvd_dtype_size(coll->op->dtype);
        rc = scatter(b, len);
        if (rc == 0 && t->out && t->out != t->in && len > 0)
            memmove(t->out, t->in, len);
        return rc;
    }
    for (;;) {
        size_t before = b->down.x.done;
        if (!b->received) {
            if ((rc = message_recv(&b->down)) < 0)
                return rc;
            b->received = rc == 0;
        }
        if ((rc = scatter(b, b->down.x.done)) < 0)
            return rc;
        if (b->received || b->down.x.done == before)
            return rc == 0 && b->received ? 0 : 1;
    }
}

static void broadcast_cancel(struct coll *coll, void *state)
{
    struct broadcast *b = state;
    for (int i = 0; i < b->nchildren; i++) {
        message_cancel_recv(&b->from_child[i]);
        message_cancel_send(&b->to_child[i]);
    }
    if (b->parent >= 0) {
        message_cancel_send(&b->up);
        message_cancel_recv(&b->down);
    }
}

const struct algorithm broadcast_algorithm = {
    .name = "broadcast_tree",
    .state_size = sizeof(struct broadcast),
    .applies = broadcast_applies,
    .start = broadcast_start,
    .progress = broadcast_progress,
    .cancel = broadcast_cancel,
};
