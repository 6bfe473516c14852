/* SPDX-License-Identifier: Apache-2.0
 *
 * set_private: the parts of making a set that set_make.c and set_form.c share.
 */
#ifndef HVD_ENGINE_SET_PRIVATE_H
#define HVD_ENGINE_SET_PRIVATE_H

#include "core/base/buf.h"
#include "core/base/sock.h"
#include "core/engine/sets.h"
#include "core/transport/card.h"

struct mesh_listener;

/* A card and its length: see transport/card.h. */
#define CARD_BYTES (2 + CARD_BYTES_MAX)

/* The same name in other rounds is another point of rendezvous. */
enum {
    SET_ROUND_CARDS,
    SET_ROUND_CONNECTED,
    SET_ROUND_REMOVE,
    SET_ROUND_REPAIR = SET_ROUND_REMOVE + 2
};

/* Connection setup among members that are all known to be alive; or HVD_START_TIMEOUT, if that is
 * shorter. */
#define CONNECT_MS 10000

#define SET_TRIES_MAX 8 /* of making or removing a set while ranks are lost */

/* ---- sets.c ---- */

/* Writes what a set is called: "set 1", or with the name of hvd_set_form(). */
void set_write_label(char *text, size_t size, int number, const char *name);

/* NULL: there is no such set. Under the lock of the table, or the progress lock. */
struct set *sets_find(const struct sets *sets, int number);

/* Whether to begin anew, together with the other ranks: a rank was lost meanwhile. */
bool set_again(const struct engine *e, int rc);

/* This rank's number in votes. It does not change during a vote, as that in the mesh may. */
int sets_own_rank(struct engine *e);

/* One call of all ranks after the other: hvd_set_add(), hvd_set_remove() and hvd_commit(). */
void sets_lock_calls(struct engine *e);
void sets_unlock_calls(struct engine *e);

/* -EBUSY: a thread of this rank is in hvd_join(), which tells the other ranks. */
int sets_check_joined(struct engine *e, struct err *err);

/* (lock) This rank knows that the set is made, or that it stays. If the world has entered another
 * epoch before that, the set is repaired now. */
void sets_works(struct engine *e, struct set *set);

/* Takes the set out of the table and away from the driver. Returns whether its mesh works, and has
 * to be left. */
bool sets_close(struct engine *e, struct set *set);

/* ---- set_repair.c, set_renew.c, set_gain.c: with the progress lock ---- */

/* Each member of a set that is lost brings {u8 flags, report, card} to a meeting. */
enum {
    /* It is removing the set. So none makes a circle now: the removal succeeds on all of them, or
     * those that go on meet again. */
    SET_REMOVES = 1,
    SET_FIXED = 2,  /* the set is fixed; it is enough that one member says so */
    SET_BROKEN = 4, /* the set is broken for this member since an earlier epoch */
    SET_BLANK = 8,  /* see set.blank: its report says nothing */
    /* It is about to leave the group (set_move.c). If all say so, they settle what is in flight,
     * and make no circle. */
    SET_SETTLES = 16,
    /* Its requests from before a gain have ended, so those of the others end, too. */
    SET_STALE = 32,
};

/* Ends the set's epoch. A set without an operation in flight is left in order, so that its ranks do
 * not take the end of connections for a loss: the world may change its epoch without one. */
void set_end_epoch(struct engine *e, struct set *set, const char *why);

/* The set has no meeting any more. */
void set_drop_meeting(struct set *set);

/* The operations of a set that has failed are over, and it is lost: its members may go on. */
void set_clear_failure(struct set *set);

/* If this rank is part of a broken unit: a set that shrinks goes on without it. Returns whether
 * that is so. */
bool set_stays_out(struct engine *e, struct set *set);

/* The set's members settle what is in flight and make no circle, now or once the circle is made
 * that is about to be. */
void set_settle(struct engine *e, struct set *set);

/* The members of set.target meet, now or once a circle is made that is about to be. */
void set_gain(struct engine *e, struct set *set);

/* Whether set.members, those of the circle or of the meeting, are the ones of the target that are
 * still there. */
bool set_has_target(const struct engine *e, const struct set *set);

/* Of a fixed set: whether the members that have met, or this rank's unit, lack a rank. */
bool set_is_broken_now(const struct engine *e, const struct set *set);

/* Acts on the end of the meeting of a set whose members have met. */
void set_go_on(struct engine *e, struct set *set);

/* Whether this rank is in a fixed set of which a place is free, and the ranks of this epoch do not
 * know that its unit is broken: the ranks that would have told them were lost at the same time. */
bool set_is_untold(const struct engine *e, const struct set *set);

/* -EOWNERDEAD: who (a set, or a request) needs ranks that are part of a broken unit. */
int set_unit_error(const struct engine *e, const char *who, struct err *ret);

/* ---- set_make.c ---- */

/* The properties from which a rank makes a set. */
struct set_entry {
    int number;       /* of a joiner; 0: it is not known yet */
    const char *name; /* of hvd_set_form(), or the rule; NULL */
    const int *ranks; /* [n] of the user's world */
    int n;
    const int *places; /* [whole]; NULL: those of the ranks, and whole is n */
    int whole;
    bool fixed;
    bool by_rule; /* ranks are those of this rank's group */
};

/* A set that is being made. */
struct making {
    struct set *set;
    struct mesh_listener *listener; /* on members */
    struct buf card;                /* of this rank */
    struct err mine;                /* why this rank cannot go on */
};

/* Creates the set, with room for all cards, so that taking them cannot fail any more; on a member
 * opens its sockets and writes its card. Failures are in m->mine. */
void making_open(struct making *m, struct engine *e, const struct set_entry *entry);

/* On a member that has all cards: makes a mesh with the others, and a circle of it. Blocks for
 * CONNECT_MS at most. Failures are in m->mine. */
void making_connect(struct making *m);

/* A joiner learns of a set. Does nothing if it knows it. If this rank is in it, it is blank, and
 * sets_gain() makes its circle. */
int set_learn(struct engine *e, const struct set_entry *entry, struct err *err);

/* Makes the collectives for the mesh of the set's circle. */
int set_make_coll(struct set *set, struct err *err);

/* Frees what is not the set's. rc < 0: the set, too. */
void making_end(struct making *m, struct engine *e, int rc);

#endif
