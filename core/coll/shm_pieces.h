/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_pieces: pipelined runs through the staging memory of a host's seats, the parts of which the
 * collectives of one host and the host's share of hierarchical ones are made.
 *
 * Every seat starts the same runs, in the same order and with the same sizes, one at a time. A run
 * is a sequence of steps; a step's data fit into one cell of every seat's staging. Steps are
 * numbered across runs and operations, so that there is no barrier between them: a cell is used
 * again when every seat has told that it is done with the step that used it before.
 *
 * The first `owners` seats own pieces: owner o has piece `first + o * stride` of every tensor of a
 * layout (layout.h), which together are its vector. On one host with several lanes and hosts:
 *
 *     layout.pieces = lanes * hosts;
 *     for each segment h: reduce_scatter(first = h, stride = hosts, owners = lanes) into the work
 *         buffer of each owner; rings; allgather(the same) from there to all outputs.
 *
 * One state belongs to one coll. Nonblocking, under the engine's progress lock. Nothing is written
 * to an output before every seat has started the run.
 */
#ifndef HVD_COLL_SHM_PIECES_H
#define HVD_COLL_SHM_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/coll/layout.h"
#include "core/coll/reduce.h"
#include "core/transport/mesh.h"

struct shm_pieces;
struct shm_steps;

/* mesh->shm must be there. */
int shm_pieces_create(struct mesh *mesh, struct shm_pieces **ret, struct err *err);
void shm_pieces_destroy(struct shm_pieces *s);

/* The numbers of the steps, for what goes beside the flags (shm_allreduce). */
struct shm_steps *shm_pieces_steps(struct shm_pieces *s);

/* Which piece of every tensor each owner has. layout must stay until the run is done. */
struct shm_share {
    const struct layout *layout;
    size_t first, stride;
    int owners; /* 1..local_size; seats from there on own nothing */
};

/* Sums (or what plan says) over the seats, in their order: the own piece into work (on owners; may
 * be NULL elsewhere), which has layout_piece_bytes() bytes. finish as in reduce(). Inputs may be
 * overwritten when the run is done. */
void shm_pieces_reduce_scatter(struct shm_pieces *s, const struct shm_share *share,
                               const struct reduce_plan *plan, bool finish, void *work);

/* How many bytes at the front of work are valid already; rises while a reduce-scatter runs. */
size_t shm_pieces_ready(const struct shm_pieces *s);

/* For one tensor of which seat i gets the elements begins[i] .. begins[i + 1] of the sums: its own
 * go to out, which does not overlap the tensor; NULL where it gets none. begins: [seats + 1] from 0
 * to all of them; it, layout and out stay until the run is done. Survivors can finish it. */
void shm_pieces_scatter_sums(struct shm_pieces *s, const struct layout *layout,
                             const size_t *begins, const struct reduce_plan *plan, void *out);

/* The owners' work to the outputs of all seats. The owner says with shm_pieces_set_ready() how many
 * bytes at the front of work are valid by now (0 at the start). work is needed until the run is
 * done. */
void shm_pieces_allgather(struct shm_pieces *s, const struct shm_share *share, const void *work);
void shm_pieces_set_ready(struct shm_pieces *s, size_t bytes);

/* Both in one, without work: results go through staging. Any layout.pieces: tensors are cut as one
 * long vector. What kind, op ... are does not matter: plan has them. */
void shm_pieces_allreduce(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan);

/* The same for small vectors: everybody reads everybody's input and reduces all of it. */
void shm_pieces_symmetric(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan);

/* Bytes of every seat to every seat: bytes[i] of seat i (from mine on seat i) to out[i]. The arrays
 * must stay until the run is done. With all but one of bytes 0: a broadcast. out[own seat] may be
 * mine or NULL: then nothing is copied there. */
void shm_pieces_gather(struct shm_pieces *s, const void *mine, uint8_t *const *out,
                       const size_t *bytes);

/* 0: done, 1: would have to wait, -ECONNRESET: the abort word is set. */
int shm_pieces_progress(struct shm_pieces *s);

/* How far each piece of the run is final, as far as the flags tell; returns how many pieces: the
 * owners' slices, or 1. final: [seats]. 0: no run is under way. */
uint32_t shm_pieces_final(const struct shm_pieces *s, uint32_t *final);

/* Brings the steps that are final to the outputs, appends what is left of a reduction to rest; see
 * coll_settle(). */
int shm_pieces_settle(struct shm_pieces *s, const uint32_t *final, struct coll_rest *rest);

/* Forgets the run under way; the mesh must then go to its next generation before the next run. */
void shm_pieces_cancel(struct shm_pieces *s);

#endif
