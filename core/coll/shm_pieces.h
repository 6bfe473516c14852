/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_pieces: pipelined runs through the staging memory of a host's seats. The collectives on one
 * host, and the part of hierarchical ones inside a host, consist of such runs.
 *
 * Every seat starts the same runs, in the same order and with the same sizes, one at a time. A run
 * is a sequence of steps; a step's data fit into one cell of every seat's staging. Steps are
 * numbered across runs and operations, so that no barrier is needed between them: a cell is reused
 * when every seat has published that it is done with the step that used it last.
 *
 * The first `owners` seats own pieces: owner o has piece `first + o * stride` of every tensor of a
 * layout (layout.h), which together are its vector. With several hosts, each of them runs:
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

/* mesh->shm must exist. */
int shm_pieces_create(struct mesh *mesh, struct shm_pieces **ret, struct err *err);
void shm_pieces_destroy(struct shm_pieces *s);

/* The numbering of steps, which the small path (shm_allreduce) uses, too. */
struct shm_steps *shm_pieces_steps(struct shm_pieces *s);

/* Which piece of every tensor each owner has. layout must stay valid until the run has finished. */
struct shm_share {
    const struct layout *layout;
    size_t first, stride;
    int owners; /* 1..local_size; seats from there on own nothing */
};

/* Combines the pieces over the seats, in their order, as plan says: the own piece is written to
 * work (on owners; NULL on other seats), which has layout_piece_bytes() bytes. finish as in
 * reduce(). Inputs may be overwritten when the run has finished. */
void shm_pieces_reduce_scatter(struct shm_pieces *s, const struct shm_share *share,
                               const struct reduce_plan *plan, bool finish, void *work);

/* How many bytes at the front of work are valid already; increases during a reduce-scatter. */
size_t shm_pieces_ready(const struct shm_pieces *s);

/* For one tensor, of whose sums seat i gets the elements begins[i] .. begins[i + 1]: the own
 * ones are written to out, which must not overlap the tensor; NULL if there are none. begins:
 * [seats + 1] from 0 to the total. begins, layout and out must stay valid until the run has
 * finished. Survivors can finish this run. */
void shm_pieces_scatter_sums(struct shm_pieces *s, const struct layout *layout,
                             const size_t *begins, const struct reduce_plan *plan, void *out);

/* Copies the owners' work to the outputs of all seats. The owner publishes with
 * shm_pieces_set_ready() how many bytes at the front of work are valid (0 at the start). work
 * must stay valid until the run has finished. */
void shm_pieces_allgather(struct shm_pieces *s, const struct shm_share *share, const void *work);
void shm_pieces_set_ready(struct shm_pieces *s, size_t bytes);

/* Reduce-scatter and allgather in one run, without work: results go through staging. Any
 * layout.pieces: the tensors are cut as one long vector. The kind of operation does not matter:
 * plan has the op and factors. */
void shm_pieces_allreduce(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan);

/* Like shm_pieces_allreduce(), for small vectors: every seat reads all seats' inputs and reduces
 * all elements. */
void shm_pieces_symmetric(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan);

/* Copies bytes[i] bytes of seat i (from mine on seat i) to out[i] on every seat. The arrays must
 * stay valid until the run has finished. With only one of bytes not 0 it is a broadcast. out[own
 * seat] may be mine or NULL: then nothing is copied there. */
void shm_pieces_gather(struct shm_pieces *s, const void *mine, uint8_t *const *out,
                       const size_t *bytes);

/* 0: done, 1: would have to wait, -ECONNRESET: the abort word is set. */
int shm_pieces_progress(struct shm_pieces *s);

/* How far each piece of the run is final, as far as the flags show. Returns the number of
 * pieces: the owners' slices, or 1; 0: no run is in progress. final: [seats]. */
uint32_t shm_pieces_final(const struct shm_pieces *s, uint32_t *final);

/* Writes the final steps to the outputs, and appends the rest of a reduction to rest; see
 * coll_settle(). */
int shm_pieces_settle(struct shm_pieces *s, const uint32_t *final, struct coll_rest *rest);

/* Cancels the current run; before the next one the mesh must begin a new generation. */
void shm_pieces_cancel(struct shm_pieces *s);

#endif
