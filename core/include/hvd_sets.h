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
 * world of these ranks. Tensors on GPUs use NCCL where the world's do.
 *
 * There is no order between sets. If ranks that are in several of them wait in orders that cannot
 * meet, the stall report of rank 0 says which operations wait for each other.
 *
 * Job of fixed size: if a rank is lost, the operations of all sets fail, as all others do. If a
 * rank shuts down, those of its sets fail with -ESHUTDOWN, and other sets go on.
 *
 * Elastic job: if a rank is lost or leaves, the ranks that are left of its sets finish what is in
 * flight and go on, as in the world. hvd_set_rank(), hvd_set_size() and hvd_set_ranks() change in
 * hvd_commit() only: then the ranks that are left are numbered in their old order. Until then
 * operations of the set have no rows for a lost rank, and its broadcasts fail with -EOWNERDEAD. A
 * rank that joins the job is in no set that was made before, but knows those of hvd_set_add(),
 * because it makes and removes such sets with the others from then on.
 *
 * Elastic job that keeps places (hvd_place()): a set is a list of places. A rank that joins is in
 * all sets that have its place, from the hvd_commit() on that admits it, and finds them by
 * hvd_sets() and hvd_set_find(). An operation of the set that another thread has submitted before
 * that may fail with -ESTALE, the same on all of its ranks. A set of hvd_set_form() is forgotten
 * when all of its ranks are lost before one has joined. */

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
 *   other sets, may need; -ENOMEM: its container or machine has less memory left than their shared
 *   segments may need: hvd_error() has the numbers. Others: hvd_error(). -EBUSY: a rank is in
 *   hvd_join(). Elastic job: -EOWNERDEAD: a rank of the list is lost, or
 *   part of a broken unit (hvd_set_fix()); -EAGAIN: ranks were lost
 * again and again while the set was made. Threads: any. Calls of one process, of hvd_set_remove()
 * and hvd_commit(), too, are made one after the other; if several threads make them, their order
 * has to be the same on every rank. */
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
 *   thread of this rank is in a call with this name, or in hvd_join(), or 64 threads are in calls
 *   (in an elastic job). -ESHUTDOWN: a member has shut down, or rank 0, or the first rank of this
 *   host: messages pass through them. -EOWNERDEAD and -EAGAIN as hvd_set_add(). -ECONNRESET as
 *   hvd_wait(). -EMFILE, -ENOMEM and others: hvd_error().
 * Threads: any, several at a time with different names. */
HVD_API int hvd_set_form(const char *name, const int *ranks, int n, int *ret_set);

/* Removes a set. Of a set of hvd_set_add() or hvd_set_split() every rank of the job calls it,
 * members or not, and in the same order as that; of a set of hvd_set_form() its members call it.
 * Its number is not used again. If it was the reason why a unit is broken (hvd_set_fix()), the
 * unit's ranks are back in their sets in the next hvd_commit().
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

/* In an elastic job: the set cannot do without any of its ranks, because each has another part of a
 * model or of the data. If one is lost or leaves, every operation and message of the set fails with
 * -EOWNERDEAD on the others, and none has a result that lacks a part. (Other sets shrink: their
 * operations go on among the ranks that are left.) An operation that has returned 0 on one rank
 * returns 0 on all that are left.
 *
 * Where places are not kept, the ranks that are left remove the set after hvd_commit(), and can
 * make another one, perhaps with a rank that has joined.
 *
 * Where they are kept, fixed sets that share a place are a unit, and so are those that are
 * connected by others. While a place of the unit is free, all operations and messages of its ranks
 * fail with -EOWNERDEAD, those of other sets, too, which go on without these ranks. The operations
 * of the world fail on every rank. All ranks go on calling hvd_commit(). In the one that admits a
 * rank for the last free place, the unit's ranks are back in all their sets. See hvd_set_source().
 *
 * Takes: a set of this rank's, not 0; where places are kept also another one of hvd_set_add().
 * Every rank of the set calls it before its first operation on the set. Where places are kept,
 * every rank of the job should call it for a set of hvd_set_add(), so that the set is still known
 * to be fixed when all of its ranks are lost. Does not wait. Returns: 0. Errors: -EINVAL: there is
 * no such set, this rank is not in it, or it is one of hvd_set_split(); -E2BIG: the lists of
 * places of the fixed sets that this rank is in, and of all fixed sets of hvd_set_add() that it
 * knows, need more than 8 KiB (20 bytes for a set whose places are evenly spaced); -ENOTCONN.
 * Threads: any. */
HVD_API int hvd_set_fix(int set);

/* After hvd_commit() has returned 1: the number in the set of the lowest rank that has missed no
 * step, so that the others can take the training state from it. A rank that has joined, or whose
 * unit was broken (hvd_set_fix()), has missed steps. From the next change of the world on it counts
 * as one that has missed none: if its transfer has failed with -EOWNERDEAD, the program has to
 * remember that this rank lacks the state. Of set 0: hvd_world.source.
 *
 * Returns: the number. -ENODATA: all ranks of the set have missed steps, or the unit of this rank,
 *   or of the set, is still broken. -EINVAL, -ENOTCONN as below. Threads: any. It changes in
 * hvd_commit() alone. */
HVD_API int hvd_set_source(int set);

/* Writes the numbers of the sets that this rank knows, at most n and rising, to ret_sets: those of
 * hvd_set_add() and hvd_set_split(), and those of hvd_set_form() in which it is. A rank that has
 * joined an elastic job finds the job's sets by it. Returns how many there are; -ENOTCONN. Any
 * thread. */
HVD_API int hvd_sets(int *ret_sets, int n);

/* The number of the newest set of hvd_set_form() with this name in which this rank is; if there is
 * none, of the newest one of hvd_set_split() with this rule. -ENOENT: there is none; -ENOTCONN. Any
 * thread. */
HVD_API int hvd_set_find(const char *name);

/* Whether the set is one of hvd_set_split(): 1 or 0. -EINVAL: there is no such set; -ENOTCONN. Any
 * thread. */
HVD_API int hvd_set_is_split(int set);

/* ---- sets by rule ---- */

/* The ranks of the job, for a rule. Every array is [size], by rank. */
struct hvd_roster {
    int size;
    const int *hosts; /* numbers of hosts, 0, 1 and so on in the order of their lowest ranks */
    const int *local_ranks; /* among the ranks of the host */
    const int *places;      /* as of hvd_places() */
};

#define HVD_GROUP_MAX 1000000000

/* A rule: gives a rank the number of its group, 0 to HVD_GROUP_MAX, or -1: it is in no group. k is
 * the number in the rule's text, 0 if there is none. It depends on the roster, the rank and k
 * alone: every rank calls it for all ranks, and all have to get the same. It calls no function of
 * hvd. Called by the thread that is in hvd_set_split(), hvd_commit() or, of a rank that joins,
 * hvd_enter(). */
typedef int (*hvd_rule_f)(const struct hvd_roster *roster, int rank, int k, void *arg);

/* Gives a rule a name of letters, digits, '_', '.' and '-'; a second call replaces the function.
 * Every rank calls it before hvd_set_split(), and a rank that may join a running job before
 * hvd_init(): functions are not sent to other ranks.
 * arg is passed to the function. Returns: 0. Errors: -EINVAL, -ENOMEM. Threads: any, also before
 * hvd_init(). It stays after hvd_shutdown(). */
HVD_API int hvd_rule_define(const char *name, hvd_rule_f rule, void *arg);

/* Divides the ranks of the job into groups, which have no rank in common, and makes a set of each:
 * one call for all groups, and one number. On each rank the number means the set of its own group.
 * On a rank in no group the set has no rank. Ranks are in the order of the job. Every rank calls
 * it, as hvd_set_add(), and hvd_set_remove() removes the sets of all groups.
 *
 * Takes: the rule:
 *   "host"      the ranks of each host
 *   "every 4"   ranks 0, 4, 8 ...; 1, 5, 9 ...; and so on
 *   "blocks 4"  ranks 0 to 3, 4 to 7 and so on
 *   "mine", "mine 4"  as the function with the name mine says (hvd_rule_define())
 *
 * Elastic job: the groups are made anew in each hvd_commit() that returns 1, of all ranks that the
 * job has then. The rule gives joiners a group, too, and other ranks may move to another one. A
 * rank whose group has other ranks than before, apart from lost ones, drops what it has in flight
 * in the set: the operations that another thread has submitted, and that no rank has begun, fail
 * with -ESTALE, the same on all ranks of the old group. So do its messages; a message that one of
 * the two ranks has finished may fail on the other one. Between a loss and hvd_commit() the rest of
 * the group goes on. hvd_set_fix() refuses such a set. hvd_set_source() is about the rank's own
 * group.
 *
 * A rank that joins has the sets by rule, too, and finds their numbers by hvd_set_find() with the
 * rule's text. If it has not defined a rule's function, it cannot join: hvd_enter(), or the call
 * that it makes instead, fails with -ENOENT, and the others go on without it. If the ranks compute
 * different groups, hvd_commit() fails with -EINVAL on all of them after the job has changed, and
 * the groups stay: each has the ranks that it has not lost, and no joiner.
 *
 * Returns and errors: as hvd_set_add(). Also: -EINVAL: the text is no rule, or the ranks compute
 * different groups; hvd_error() has what two ranks have computed. -ENOENT: a rank has not defined
 * the function. -EOWNERDEAD: a rank is lost; call hvd_commit() first. Threads: any, but the order
 * of these calls, the removal of their sets and hvd_commit() is the same on every rank. */
HVD_API int hvd_set_split(const char *rule, int *ret_set);

/* ---- what a rank sees ---- */

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
