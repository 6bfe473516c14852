/* SPDX-License-Identifier: Apache-2.0
 *
 * hier: allreduce of tensors of GPUs over several hosts in two levels: NCCL between the GPUs of a
 * host, the host's own links or MPI between hosts.
 *
 * An operation is cut into chunks (staged.h: a tensor at multiples of its own beginning). Of each
 * chunk every rank of a host gets a shard:
 *
 *     packed by our kernels -> ncclReduceScatter on the host -> the shard out into locked memory
 *     -> summed with the same local rank of the other hosts -> back -> ncclAllGather -> unpacked
 *
 * several chunks at a time, NCCL's calls in the same order on every rank. The kernels that pack and
 * unpack a chunk apply the factors. Each piece of a tensor has a part in every shard, computed from
 * its own count only. So the order in which the hosts' sums are added does not depend on fusion.
 *
 * Two levels need hosts with equal numbers of ranks, at least two, and our kernels on every rank
 * (hier_choice.h). The communicator of the host's ranks, and the memory, last over epochs. Call all
 * functions in a visit of the GPU, under the progress lock.
 */
#ifndef HVD_BACKEND_HIER_H
#define HVD_BACKEND_HIER_H

#include "core/backend/nccl_run.h"
#include "core/backend/staged.h"
#include "core/coll/algorithm.h"

struct hier;

/* gpu outlives it. */
int hier_create(struct gpu *gpu, struct hier **ret, struct err *err);

/* As nccl_run_destroy(). NULL is fine. */
bool hier_destroy(struct hier *hier);

/* The communicator of the ranks of this host, in each epoch: as nccl_run_say(), nccl_run_hear() and
 * nccl_run_form(). */
void hier_say(struct hier *hier, struct nccl_said *ret);
enum nccl_verdict hier_hear(struct hier *hier, const struct nccl_said *all, const struct mesh *mesh,
                            struct err *err);
int hier_form(struct hier *hier, struct coll *coll, struct err *err);

/* Returns whether two levels can run this operation; the same on every rank. */
bool hier_can(const struct hier *hier, const struct coll_op *op);

/* Prepares op and adds nothing to a stream yet. op must stay valid until the operation ends. */
int hier_prepare(struct hier *hier, const struct mesh *mesh, const struct coll_op *op,
                 struct err *err);

/* Call when every rank has entered the operation. Returns as coll_progress() does; 0: the results
 * are in the outputs. Runs parts of coll's current operation; *ret_between: such a part has failed.
 */
int hier_progress(struct hier *hier, struct coll *coll, bool *ret_between, struct err *err);

/* Cancels the operation. Work on streams is ended by hier_abort() and hier_drained(), as in
 * nccl_run. */
void hier_cancel(struct hier *hier, struct coll *coll);
void hier_abort(struct hier *hier);
int hier_drained(struct hier *hier, struct err *err);

/* ---- how a chunk is cut into shards (hier_cut.c); pure ---- */

/* A piece's part in a shard. */
struct hier_part {
    size_t each; /* elements; the last shards may have fewer of them, or none */
    size_t at;   /* bytes from the beginning of the shard */
};

/* Fills parts ([chunk->n]). elem: bytes of an element as it is sent. Returns the bytes of a shard,
 * a multiple of 16. */
size_t hier_cut(const struct staged_chunk *chunk, int shards, size_t elem, struct hier_part *parts);

/* How many elements of a piece of `count` elements are in a shard. */
size_t hier_count(const struct hier_part *part, size_t count, int shard);

/* The largest possible shard, in bytes. */
size_t hier_shard_max(int shards);

#endif
