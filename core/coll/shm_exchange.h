/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_exchange: all-to-all among the seats of one host, through staging.
 *
 * A seat cuts each of its rows into so many equal parts that one part of every row fits into a
 * cell. It writes their number, and the offset of each receiver's part in the cell, into its table
 * (shm.h) before it publishes its first part. Receivers know the lengths. Each part is written to
 * the next cell while the receivers copy earlier ones out. An empty row has no parts, and a seat
 * without remaining rows is not woken before the end.
 *
 * No output is written before every seat has started. No seat finishes before the last byte of all
 * rows is staged: so survivors find everything that they have not copied yet in the cells.
 * Nonblocking, under the engine's progress lock; its runs and those of shm_pieces use the same
 * numbered steps.
 */
#ifndef HVD_COLL_SHM_EXCHANGE_H
#define HVD_COLL_SHM_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/coll/shm_steps.h"

struct shm_exchange;

/* steps: of the mesh's shm_pieces, not owned. */
int shm_exchange_create(struct shm_steps *steps, struct shm_exchange **ret, struct err *err);
void shm_exchange_destroy(struct shm_exchange *x);

/* Sends rows of to[seat] bytes, consecutive in in; receives rows of from[seat] bytes,
 * consecutive in out. The arrays are [seats] and, like in and out, must stay valid until the
 * end; in and out do not overlap. */
void shm_exchange_start(struct shm_exchange *x, const void *in, const size_t *to, void *out,
                        const size_t *from);

/* 0: finished, 1: would have to wait, -ECONNRESET: the abort word is set, -EPROTO: a malformed
 * table. */
int shm_exchange_progress(struct shm_exchange *x);

/* 1: the rows of all seats are staged; 0: not yet, as far as the flags show. */
uint32_t shm_exchange_final(struct shm_exchange *x);

/* Copies all rows to the output; all of them must be staged. -EPROTO. */
int shm_exchange_settle(struct shm_exchange *x);

/* Cancels the run; before the next one the mesh must begin a new generation. */
void shm_exchange_cancel(struct shm_exchange *x);

#endif
