/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_rank: one rank's side of a test of shared memory collectives (in a process forked by
 * shm_host): the algorithms, buffers, and operations on many tensors, checked against
 * tests/harness/pattern. All ranks of a host must make the same calls in the same order, because
 * they share the sequence of random numbers.
 */
#ifndef HVD_TESTS_HARNESS_SHM_RANK_H
#define HVD_TESTS_HARNESS_SHM_RANK_H

#include <stdint.h>

#include "core/coll/shm_allreduce.h"

enum { SHM_FUSED_MOST = 40, SHM_RANK_SLACK = 256 };

struct shm_rank {
    struct mesh *mesh;
    struct shm_pieces *pieces;
    struct shm_allreduce *all;
    uint8_t *in, *out; /* [room + SHM_RANK_SLACK] */
    size_t room;
    unsigned salt; /* number of the operation, the same on all ranks */
    unsigned random;
};

/* Returns 0 or an error; call shm_rank_fini() in either case, which returns rc. */
int shm_rank_init(struct shm_rank *r, struct mesh *mesh, size_t room);
int shm_rank_fini(struct shm_rank *r, int rc);

/* Random numbers, the same on all ranks. */
unsigned shm_rank_random(struct shm_rank *r);

/* Chooses sizes (elements) for n tensors, most of them small, that fit into the room. */
void shm_rank_counts(struct shm_rank *r, size_t elem, size_t *ret_counts, size_t n);

/* Drive r->all or r->pieces to the end of the operation. 0 or the error. */
int shm_rank_drive(struct shm_rank *r);
int shm_rank_drive_pieces(struct shm_rank *r);

/* An allreduce of tensors that are adjacent and unaligned in r->in and r->out. */
struct shm_fused {
    struct coll_op op;
    struct coll_tensor tensors[SHM_FUSED_MOST];
};

/* Fills the inputs. */
void shm_fused_init(struct shm_fused *f, struct shm_rank *r, enum hvd_dtype dtype, enum hvd_op op,
                    const size_t *counts, size_t n, bool in_place);

/* Returns 0, or 1 after printing the first wrong element on stderr. */
int shm_fused_check(const struct shm_fused *f, const struct shm_rank *r);

/* Overwrites inputs and outputs, like a caller that reuses its tensors at once. */
void shm_fused_spoil(const struct shm_fused *f);

#endif
