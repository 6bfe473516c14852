/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_sets: the part of hvd.h about sets of ranks. Programs include hvd.h.
 */
#ifndef HVD_SETS_H
#define HVD_SETS_H

#ifndef HVD_H
#error "include hvd.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A set is an ordered group of ranks with operations of its own: requests with its number as
 * hvd_request.set. Names of different sets have nothing to do with each other, and sets without a
 * common rank never wait for each other. A result depends on the set's members alone, as in a
 * world of these ranks. Tensors are in host memory so far, and the job is not elastic.
 *
 * There is no order between sets. If ranks that are in several of them wait in orders that cannot
 * meet, the stall report of rank 0 says which operations wait for each other.
 *
 * If a rank of the job is lost, the operations of all sets fail, as all others do. If a rank shuts
 * down, those of its sets fail with -ESHUTDOWN, and other sets go on. */

/* Makes a set. Every rank of the job calls it, members or not, with the same ranks in the same
 * order, and all ranks make and remove several sets in the same order. Each call makes a set of its
 * own, also for ranks for which there is one.
 *
 * Takes: the n ranks that are in the set. ranks[i] is number i of the set.
 * Returns: 0 and the set's number (> 0, the same on every rank) in *ret_set, when the set is ready
 *   on all its members.
 * Errors: the same on every rank, and nothing is made. -EINVAL: no rank, a rank that does not
 *   exist or that is named twice, or ranks that have asked for different sets. -ETIMEDOUT: its
 *   members could not connect. -EMFILE: a member may not open as many files as the set, and its
 *   other sets, may need: hvd_error() has the numbers. Others: hvd_error(). -ENOTSUP: the job is
 *   elastic. -EBUSY: a rank is in hvd_join().
 * Threads: any. Calls of one process, of hvd_set_remove(), too, are made one after the other; if
 *   several threads make them, their order has to be the same on every rank. */
HVD_API int hvd_set_add(const int *ranks, int n, int *ret_set);

/* Makes a set, as hvd_set_add(), but only its members call, each with the same name and the same
 * ranks in the same order. Other ranks need not know of it. Ranks that call with the same name and
 * with other ranks form another set. Each call makes a set of its own.
 *
 * Takes: a name of 1 to HVD_MAX_NAME bytes, and the n ranks, this one among them.
 * Returns: 0 and the set's number (>= 1000000, the same on its ranks) in *ret_set, when the set
 *   is ready.
 * Errors: the same on every rank that has called, and nothing is changed. -ETIMEDOUT: a rank has
 *   not called within HVD_START_TIMEOUT of the first one, and hvd_error() names it; or the
 *   members could not connect. -EINVAL (on this rank alone): wrong arguments. -EBUSY: another
 *   thread of this rank is in a call with this name, or in hvd_join(). -ESHUTDOWN: a member has
 *   shut down, or rank 0, or the first rank of this host: messages pass through them. -ENOTSUP:
 *   the job is elastic. -ECONNRESET as hvd_wait(). -EMFILE and others: hvd_error().
 * Threads: any, several at a time with different names. */
HVD_API int hvd_set_form(const char *name, const int *ranks, int n, int *ret_set);

/* Removes a set. Of a set of hvd_set_add() every rank of the job calls it, members or not, and in
 * the same order as that; of a set of hvd_set_form() its members call it. Its number is not used
 * again.
 *
 * Returns: 0 when the set is removed on this rank.
 * Errors: the same on every rank that calls, and nothing is changed. -EBUSY: operations of the
 *   set are in flight, a rank is in hvd_join(), or another thread is removing the set. -EINVAL:
 *   there is no such set, it is 0, the world, or ranks have called otherwise. -ETIMEDOUT: a
 *   member of a set of hvd_set_form() has not called within HVD_START_TIMEOUT. -ECONNRESET as
 *   hvd_wait().
 * Threads: any. A request for the set that another thread submits meanwhile may fail with
 *   -EINVAL, also if the set stays. */
HVD_API int hvd_set_remove(int set);

/* The number of ranks in the set. -EINVAL: there is no such set. -ENOTCONN. Any thread. */
HVD_API int hvd_set_size(int set);

/* This rank's number in the set. -ENOENT: it is not in the set. -EINVAL, -ENOTCONN as above. Any
 * thread. */
HVD_API int hvd_set_rank(int set);

/* Writes the set's ranks, at most n, to ret_ranks. Returns how many there are, or -EINVAL,
 * -ENOTCONN as above. Any thread. */
HVD_API int hvd_set_ranks(int set, int *ret_ranks, int n);

#ifdef __cplusplus
}
#endif

#endif
