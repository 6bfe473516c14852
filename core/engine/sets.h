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
    int number;     /* > 0; from SETS_FORMED on: hvd_set_form() has made it */
    int size;       /* ranks in the set */
    int *ranks;     /* [size] their numbers in the world */
    int rank;       /* this rank's number in the set; -1: it is not in the set, and has no circle */
    char text[192]; /* "set 1 (ranks 0, 2)", for messages */
    bool prepared;  /* sets_prepare() has succeeded */
    bool leaving;   /* a thread removes it; (lock of the table) */
    struct boot boot; /* what the mesh was made from; it outlives the mesh */
    struct circle circle;
};

/* Numbers of sets that hvd_set_add() makes are smaller. */
#define SETS_FORMED 1000000

struct sets {
    /* held by hvd_set_add() and the hvd_set_remove() of its sets, one after the other, and when
     * hvd_join() begins */
    pthread_mutex_t calls;
    /* Held for reading by hvd_set_form() and the hvd_set_remove() of its sets; for writing when
     * hvd_join() begins and during fork(2). */
    pthread_rwlock_t forms;
    /* Protects the table. Written with the progress lock, too: the driver reads without. */
    pthread_mutex_t lock;
    struct set **table; /* [n] in the order of numbers */
    size_t n, cap;
    size_t nprepared;        /* sets for which there is room in the table */
    int added;               /* the last number that hvd_set_add() has used; (calls) */
    struct circle **circles; /* [ncircles] those of the sets that this rank is in; (lock) */
    size_t ncircles;
    _Atomic int over; /* the engine has failed or ends: a set is not waited for any more */
    int epoll_fd;     /* of the meshes of all circles and of the world; -1: there was no set yet */
};

void sets_init(struct sets *sets);
void sets_fini(struct sets *sets);

/* hvd_set_add(), hvd_set_form() and hvd_set_remove(), called inside life_begin(). */
int sets_add(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err);
int sets_form(struct engine *e, const char *name, const int *ranks, int n, int *ret_set,
              struct err *err);
int sets_remove(struct engine *e, int set, struct err *err);

/* hvd_set_rank() and hvd_set_ranks(), called inside life_peek(). Set 0 is the world. */
int sets_rank(struct engine *e, int set, struct err *err);
int sets_ranks(struct engine *e, int set, int *ret_ranks, int n, struct err *err);

/* (lock) The circle of a set, or of the world (0). NULL: there is none here. */
struct circle *sets_circle(struct engine *e, int set);

/* (lock) Tells all circles but the world's why this rank gives up. */
void sets_abort(struct engine *e, const char *why);

/* Makes sure that this process may open all descriptors that a new set of n ranks needs here, and
 * those that its other sets may still open. Without the progress lock. -EMFILE with the numbers:
 * the limit is too low. */
int sets_need_fds(struct engine *e, int n, struct err *err);

/* Adds the ranks of a set that is being made to its text, and makes room for it everywhere: opening
 * it cannot fail then. Its circle is driven from here on, so that slower ranks get answers. Below:
 * takes that back. */
int sets_prepare(struct engine *e, struct set *set, struct err *err);
void sets_take_back(struct engine *e, struct set *set);

/* All of its ranks have made the set: requests are accepted. */
void sets_open(struct engine *e, struct set *set);

/* Before and after fork(2), in the parent, and around the beginning of hvd_join(): no set is made
 * or removed in between. */
void sets_hold(struct sets *sets);
void sets_let(struct sets *sets);

/* ---- set_make.c ---- */

/* Makes a set together with all ranks. The caller opens it. */
int set_make(struct engine *e, const int *ranks, int n, struct set **ret, struct err *err);

/* ---- set_form.c ---- */

/* Makes a set with its members. The caller opens it. */
int set_form(struct engine *e, const char *name, const int *ranks, int n, struct set **ret,
             struct err *err);

/* The members of a set that was formed say how something went (code 0: well). Returns 0 if it went
 * well for all; otherwise the error of one of them, the same on all. round: 0 or 1; differs from
 * that of the call before. */
int set_form_agree(struct engine *e, const struct set *set, int round, const struct err *mine,
                   struct err *err);

/* ---- set_make.c ---- */

/* Leaves the set's mesh together with its other ranks, after all of them have agreed to that. */
void set_leave(struct set *set);

/* Frees the set. NULL is allowed. */
void set_destroy(struct set *set);

#endif
