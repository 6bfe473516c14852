/* SPDX-License-Identifier: Apache-2.0
 *
 * ranklist: an ordered list of ranks in messages and in texts. In a message it is a list of runs
 * {u32 first, u32 step, u32 length}, rank i of a run being first + i * step (modulo 2^32). So each
 * data, tensor or pipeline group of a grid of ranks is one run, however many ranks it has. Equal
 * lists have equal bytes. Plain data; no locking.
 */
#ifndef HVD_NEGOTIATE_RANKLIST_H
#define HVD_NEGOTIATE_RANKLIST_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* -EINVAL: the list is empty, or has a rank twice or one that is not in 0 ... size - 1. what:
 * begins err's text. */
int ranklist_check(const char *what, const int *ranks, int n, int size, struct err *err);

/* The position of rank in the list; -1: it is not in it. */
int ranklist_find(const int *ranks, int n, int rank);

void ranklist_write(const int *ranks, int n, struct buf *b);

/* Reads a list of 1 to size ranks, all in 0 ... size - 1, into ret_ranks, which the caller frees.
 * Returns their number; -EPROTO; -ENOMEM. A rank may be in it twice. */
int ranklist_read(struct reader *r, int size, int **ret_ranks);

/* The same, into the caller's ret_ranks [size]. */
int ranklist_read_to(struct reader *r, int size, int *ret_ranks);

/* Bytes that ranklist_write() writes. */
size_t ranklist_bytes(const int *ranks, int n);

/* Writes "rank 3" or "ranks 0, 2"; of many ranks the first ones. size: 64 at least. */
void ranklist_text(const int *ranks, int n, char *text, size_t size);

#endif
