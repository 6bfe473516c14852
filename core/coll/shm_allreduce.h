/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_allreduce: allreduce among the seats of one host (hosts == 1, local_size > 1), and barriers.
 *
 * Up to SHM_INLINE_MAX bytes the payload is stored beside the flag; up to 768 KiB / (seats - 1)
 * every seat reduces all data from the staging of all seats; above that each seat reduces its
 * slice. Nonblocking, under the engine's progress lock; never sleeps or spins. After the operation
 * has finished the caller may overwrite inputs and outputs. No output is written before every seat
 * has started.
 */
#ifndef HVD_COLL_SHM_ALLREDUCE_H
#define HVD_COLL_SHM_ALLREDUCE_H

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/coll/shm_pieces.h"
#include "core/transport/mesh.h"

struct shm_allreduce;

/* pieces: of the same mesh, not owned; may be used for other runs between operations. */
int shm_allreduce_create(struct mesh *mesh, struct shm_pieces *pieces, struct shm_allreduce **ret,
                         struct err *err);
void shm_allreduce_destroy(struct shm_allreduce *s);

/* kind: allreduce, or barrier (op->n == 0). op and its tensors must stay until the end. */
void shm_allreduce_start(struct shm_allreduce *s, const struct coll_op *op);

/* 0: done, 1: would have to wait, -ECONNRESET: the abort word is set. */
int shm_allreduce_progress(struct shm_allreduce *s);

/* Cancels the operation; before the next one the mesh must begin a new generation. */
void shm_allreduce_cancel(struct shm_allreduce *s);

/* How far the operation is final, and writing final parts to the outputs: as shm_pieces_final()
 * and shm_pieces_settle(). */
uint32_t shm_allreduce_final(const struct shm_allreduce *s, uint32_t *final);
int shm_allreduce_settle(struct shm_allreduce *s, const uint32_t *final, struct coll_rest *rest);

/* "shm_small", "shm_symmetric", "shm_slice" */
const char *shm_allreduce_name(const struct shm_allreduce *s);

#endif
