/* SPDX-License-Identifier: Apache-2.0
 *
 * sets: groups of ranks with operations of their own (hvd_set_add()). SETS.md says what they mean.
 * A rank has a circle for each set that it is in. set_add.c and set_form.c make one, set_remove.c
 * removes it, sets.c has the table, set_repair.c makes circles anew when the world enters another
 * epoch.
 */
#ifndef HVD_ENGINE_SETS_H
#define HVD_ENGINE_SETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/backend/gpu.h"
#include "core/base/err.h"
#include "core/boot/boot.h"
#include "core/engine/circle.h"
#include "core/engine/meet.h"
#include "core/engine/retired.h"
#include "core/engine/set_claims.h"
#include "core/engine/set_view.h"

struct engine;
struct mesh_listener;

struct set {
    int number; /* > 0; from SETS_FORMED on: hvd_set_form() has made it */
    /* As its user sees it now, and did before the last boundary. This rank's number is -1 if it is
     * not in the set: then it has no circle. (lock of the table) */
    struct set_view view, before;
    char *name;     /* of hvd_set_form(), or the rule; NULL: it was made by hvd_set_add() */
    char label[96]; /* "set 1", or with the name */
    char text[288]; /* label and ranks, for messages; (lock) */
    bool prepared;  /* sets_prepare() has succeeded */
    bool fixed;     /* hvd_set_fix(): its policy is fixed; (lock of the table) */
    int whole;      /* how many ranks it was made of; by rule: the most that it can have */
    int *places;    /* [whole] in a job that keeps places: of which places it was made; else NULL */
    /* The number in the set of the lowest rank that has the training state; -1: none has it.
     * (lock of the table) */
    int source;
    bool leaving; /* a thread removes it; (lock of the table) */
    /* Of a set of hvd_set_form(): its members have agreed to make it, or to remove it. (lock) */
    bool made, removed;
    /* The ranks of the circle, in their order in the set. A member that was lost is missing, also
     * before the next boundary. */
    uint32_t *members; /* [boot.size] member numbers */
    int *ranks;        /* [boot.size] numbers in the world's mesh */
    struct boot boot;  /* what the mesh was made from; it outlives the mesh */
    struct circle circle;
    /* The epoch in which it was made, or ranks came to it last. That is the newest one then: a
     * joiner counts as new until it has entered the job, perhaps in epochs after that of the user's
     * world. (lock) */
    uint32_t since;
    bool broken;        /* it is fixed and has lost a rank: its circle has failed */
    uint64_t broken_at; /* clock_ns() when this rank learned that */
    /* This rank has nothing in common with the other members: it has joined the job, or was out of
     * the set while its unit was broken. */
    bool blank;
    /* Ranks come to the set (set_gain.h): its members are to be these ntarget ones, of the user's
     * world, of epoch target_epoch. */
    bool gains;
    uint32_t *target; /* [whole] member numbers */
    int ntarget;
    uint32_t target_epoch;
    bool outdated; /* its last circle was made before ranks came to it */
    bool stale;    /* since then requests from before have ended on this rank */
    bool held;     /* it is lost, and meets when this rank has heard of the gain (sets.sharing) */
    /* hvd_set_split(): its ranks here are those of this rank's group (set_move.h). */
    bool by_rule;
    uint32_t generation; /* the epoch in which they came together last; 0: the set was made so */
    bool out;            /* this rank was part of a broken unit since then */
    bool moves;          /* the group is about to change, so its operations end */
    bool settled;        /* and what was in flight is settled on this rank */
    /* CIRCLE_LOST, or broken: the meeting of the members in this epoch. */
    struct meeting meeting;
    bool meets; /* it has begun, and this rank has not acted on its end */
    /* A member has said in this epoch that it is removing the set. So no circle is made in it,
     * unless the removal fails. */
    bool told_of_removal;
    bool warned;                    /* sets_look_at_gpu() has logged */
    struct mesh_listener *listener; /* on which this rank waits for the others afterwards */
    struct set *next_met;
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
    /* Sets whose members have met in this epoch, in the order in which rank 0 has answered: the
     * same on all of them. Their circles are to be made anew. (lock) */
    struct set *met, **met_end;
    struct set_claims claims; /* (lock) */
    /* The user has entered a world of which the table of sets is being shared, and ranks may come
     * to sets. No set that is lost meanwhile meets: when this rank has heard of the end of that,
     * the ranks that have to meet may be other ones. (lock) */
    bool sharing;
    _Atomic int mended;     /* see sets_may_mend(); written with the progress lock */
    struct retired retired; /* (lock) */
    _Atomic int over;       /* the engine has failed or ends: a set is not waited for any more */
    struct gpu_use told;    /* what the agent knows of the GPU; (lock) */
    int epoll_fd; /* of the meshes of all circles and of the world; -1: there was no set yet */
};

void sets_init(struct sets *sets);
void sets_fini(struct sets *sets);

/* hvd_set_add(), hvd_set_split(), hvd_set_form() and hvd_set_remove(), called inside life_begin().
 */
int sets_add(struct engine *e, const int *ranks, int n, int *ret_set, struct err *err);
int sets_split(struct engine *e, const char *rule, int *ret_set, struct err *err);
int sets_form(struct engine *e, const char *name, const int *ranks, int n, int *ret_set,
              struct err *err);
int sets_remove(struct engine *e, int set, struct err *err);

/* hvd_set_fix(), called inside life_begin(). */
int sets_fix(struct engine *e, int set, struct err *err);

/* hvd_set_rank() and hvd_set_ranks(), called inside life_peek(). Set 0 is the world. */
int sets_rank(struct engine *e, int set, struct err *err);
int sets_ranks(struct engine *e, int set, int *ret_ranks, int n, struct err *err);

/* (lock) The circle of a set, or of the world (0). NULL: there is none here. */
struct circle *sets_circle(struct engine *e, int set);

/* Whether there is such a set, perhaps without this rank. Without the progress lock. */
bool sets_knows(struct engine *e, int set);

/* (lock) Tells all circles but the world's why this rank gives up. */
void sets_abort(struct engine *e, const char *why);

/* (lock) Whether this rank has removed a fixed set of a broken unit since the newest epoch began.
 * In the next one its other ranks may be whole. */
bool sets_may_mend(struct engine *e);

/* (lock; that of the table; that of the queue) The user moves to world w, and e->world is still the
 * one before. */
void sets_follow(struct engine *e, const struct world *w);

/* (lock) The maps between the set's views and its circle. */
void set_update_maps(struct set *set);

/* (lock of the table) Writes the set's text anew from its view. */
void set_write_text(struct set *set);

/* hvd_set_source() and hvd_sets(), called inside life_peek(). */
int sets_source(struct engine *e, int set, struct err *err);
int sets_numbers(struct engine *e, int *ret_sets, int n);
int sets_is_split(struct engine *e, int set, struct err *err);
int sets_named(struct engine *e, const char *name, struct err *err);

/* Adds the ranks of a set that is being made to its text, and makes room for it everywhere: opening
 * it cannot fail then. Its circle is driven from here on, so that slower ranks get answers.
 * -EAGAIN: the world has entered another epoch since the set's mesh was begun. Below: takes that
 * back. */
int sets_prepare(struct engine *e, struct set *set, struct err *err);
void sets_take_back(struct engine *e, struct set *set);

/* All of its ranks have made the set: requests are accepted. */
void sets_open(struct engine *e, struct set *set);

/* Before and after fork(2), in the parent, and around the beginning of hvd_join(): no set is made
 * or removed in between. */
void sets_hold(struct sets *sets);
void sets_let(struct sets *sets);

/* (lock) The driver drives the set's circle, or does not any more. There is room for it. Below:
 * the same for the world's mesh. */
int sets_watch(struct engine *e, struct set *set, struct err *err);
void sets_unwatch(struct engine *e, struct set *set);
int sets_watch_world(struct engine *e, struct err *err);
void sets_unwatch_world(struct engine *e);

/* ---- set_room.c ---- */

/* Makes sure that a limit of this process or its container is not hit once a new set of these n
 * ranks of the user's world, and this rank's other sets, are used in full. Without the progress
 * lock. -EMFILE: descriptors, -ENOMEM: memory for shared segments; with the numbers. */
int sets_need_room(struct engine *e, const int *ranks, int n, struct err *err);

/* (lock) The set is about to make NCCL's communicator on the GPU of that number. If less memory is
 * left there than a communicator of this rank has taken, logs a warning, once for the set. The
 * communicator is made all the same: it may need less, and the other ranks know nothing of it. */
void sets_look_at_gpu(struct circle *c, int ordinal);

/* ---- set_tell.c ---- */

/* (lock) Tells the agent, if there is one, in how many sets this rank is now, which of them are
 * broken, and what NCCL's communicators leave of the GPU. */
void sets_tell_agent(struct engine *e);

/* (lock) The same, if there is a set, and a communicator was made or has ended since. */
void sets_tell_of_gpu(struct engine *e);

/* ---- set_add.c ---- */

/* What hvd_set_add() or hvd_set_split() asks for. */
struct set_wish {
    const char *rule; /* NULL: the ranks are given */
    const int *ranks; /* [n] */
    int n;
};

/* Makes a set together with all ranks. The caller opens it. */
int set_make(struct engine *e, const struct set_wish *wish, struct set **ret, struct err *err);

/* ---- set_form.c ---- */

/* Makes a set with its members. The caller opens it. */
int set_form(struct engine *e, const char *name, const int *ranks, int n, struct set **ret,
             struct err *err);

/* The set is open: waits until all members know that it is made. */
int set_formed(struct engine *e, struct set *set, struct err *err);

/* The members of a set that was formed say how something went (code 0: well). Returns 0 if it went
 * well for all; otherwise the error of one of them, the same on all. round: 0, and 1 for the last
 * one, after which the set is removed. -EAGAIN: the
 * world has entered another epoch than `epoch`. */
int set_form_agree(struct engine *e, struct set *set, int round, uint32_t epoch,
                   const struct err *mine, struct err *err);

/* ---- set_make.c ---- */

/* Leaves the set's mesh together with its other ranks, after all of them have agreed to that. */
void set_leave(struct set *set);

/* In the child after fork(2): closes all descriptors. Async-signal-safe. */
void set_after_fork(struct set *set);

/* Frees the set. NULL is allowed. */
void set_destroy(struct set *set);

/* ---- set_repair.c, set_renew.c, all with the progress lock ---- */

/* The world's epoch ends. Ends those of all sets; a set that works is lost from here on. */
void sets_revoke(struct engine *e, const char *why);

/* After a loss, when all survivors have reported: gpu_lane_revoke() for all sets. */
void sets_revoke_gpus(struct engine *e);

/* The world is in a new epoch, and its control tree works: this rank tells the other members of its
 * lost sets, each by a meeting, that it can go on. */
void sets_enter(struct engine *e);

/* The same for one set, which is lost. */
void set_enter(struct engine *e, struct set *set);

/* Makes the circle of one set whose members have met. Returns whether there was one. */
bool sets_go_on(struct engine *e);

/* Takes the set from the list of those whose members have met. */
void sets_forget_met(struct engine *e, struct set *set);

/* The engine fails because of why: the lost sets drop what they had in flight. */
void sets_drop_lost(struct engine *e, const struct err *why);

#endif
