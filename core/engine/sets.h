/* SPDX-License-Identifier: Apache-2.0
 *
 * sets: groups of ranks with operations of their own (hvd_set_add()). SETS.md says what they mean.
 * A rank has a circle for each set that it is in. set_make.c makes one, sets.c has the table.
 */
#ifndef HVD_ENGINE_SETS_H
#define HVD_ENGINE_SETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/boot/boot.h"
#include "core/engine/circle.h"

struct engine;

struct set {
    int number;     /* > 0 */
    int size;       /* ranks in the set */
    int *ranks;     /* [size] their numbers in the world */
    int rank;       /* this rank's number in the set; -1: it is not in the set, and has no circle */
    char text[192]; /* "set 1 (ranks 0, 2)", for messages */
    struct boot boot; /* what the mesh was made from; it outlives the mesh */
    struct circle circle;
};

struct sets {
    /* held by hvd_set_add() and hvd_set_remove(), one after the other, and when hvd_join() begins
     */
    pthread_mutex_t calls;
    /* Protects the table. Written with the progress lock, too: the driver reads without. */
    pthread_mutex_t lock;
    struct set **table; /* [n] by number - 1; NULL: it was removed */
    size_t n, cap;
    struct circle **circles; /* [ncircles] those of the sets that this rank is in; (lock) */
    size_t ncircles;
    _Atomic int over; /* the engine has failed or ends: a set is not waited for any more */
    int epoll_fd;     /* of the meshes of all circles and of the world; -1: there was no set yet */
};

void sets_init(struct sets *sets);
void sets_fini(struct sets *sets);

/* hvd_set_add() and hvd_set_remove(), called inside life_begin(). */
int sets_add(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err);
int sets_remove(struct engine *e, int set, struct err *err);

/* hvd_set_rank() and hvd_set_ranks(), called inside life_peek(). Set 0 is the world. */
int sets_rank(struct engine *e, int set, struct err *err);
int sets_ranks(struct engine *e, int set, int *ret_ranks, int n, struct err *err);

/* Writes "ranks 0, 2"; of many, the first ones. size: 64 at least. */
void sets_list_ranks(const int *ranks, int n, char *text, size_t size);

/* (lock) The circle of a set, or of the world (0). NULL: there is none here. */
struct circle *sets_circle(struct engine *e, int set);

/* (lock) Tells all circles but the world's why this rank gives up. */
void sets_abort(struct engine *e, const char *why);

/* Makes sure that this process may open all descriptors that a new set of n ranks needs here, and
 * those that its other sets may still open. Without the progress lock. -EMFILE with the numbers:
 * the limit is too low. */
int sets_need_fds(struct engine *e, int n, struct err *err);

/* Gives a set that is being made its number, and makes room for it everywhere: adding it cannot
 * fail then. Its circle is driven from here on, so that slower ranks get answers. Below: takes that
 * back. */
int sets_prepare(struct engine *e, struct set *set, struct err *err);
void sets_take_back(struct engine *e, struct set *set);

/* Before and after fork(2), in the parent: no set is made or removed in between. */
void sets_before_fork(struct sets *sets);
void sets_after_fork(struct sets *sets);

/* ---- set_make.c ---- */

/* Makes a set together with all ranks. The caller adds it to the table. */
int set_make(struct engine *e, const int *ranks, int n, struct set **ret, struct err *err);

/* Leaves the set's mesh together with its other ranks, after all of them have agreed to that. */
void set_leave(struct set *set);

/* Frees the set. NULL is allowed. */
void set_destroy(struct set *set);

#endif
