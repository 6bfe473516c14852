/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_exchange: all-to-all among the seats of one host, through staging.
 *
 * A seat cuts each of its rows into so many even parts that one part of every row fits into a cell.
 * How many that are and where in the cell each receiver's part lies it writes into its table
 * (shm.h) before it tells of its first part; a receiver knows the lengths. Each part goes into the
 * next cell while the receivers copy the former ones out. A row of no bytes has no part, and who
 * has no rows left is not woken before the end.
 *
 * Nobody writes an output before every seat has started, and nobody is done before everybody's rows
 * are staged to the last byte: survivors find in the cells what they have not copied out yet.
 * Nonblocking, under the engine's progress lock; runs take turns with those of shm_pieces on the
 * same steps.
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

/* From in, rows of to[seat] bytes one after the other; to out, rows of from[seat] bytes. The arrays
 * are [seats] and, as in and out, stay until the end; in and out do not overlap. */
void shm_exchange_start(struct shm_exchange *x, const void *in, const size_t *to, void *out,
                        const size_t *from);

/* 0: done, 1: would have to wait, -ECONNRESET: the abort word is set, -EPROTO: a table that makes
 * no sense. */
int shm_exchange_progress(struct shm_exchange *x);

/* 1: everybody's rows are staged; 0: not, as far as the flags tell. */
uint32_t shm_exchange_final(struct shm_exchange *x);

/* Brings all rows that are staged to the output; they must all be. -EPROTO. */
int shm_exchange_settle(struct shm_exchange *x);

/* Forgets the run; the mesh must then go to its next generation before the next one. */
void shm_exchange_cancel(struct shm_exchange *x);

#endif
