/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_private: what the files of the roster share and nobody else uses. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_PRIVATE_H
#define HVD_MEMBER_ROSTER_PRIVATE_H

#include "core/member/roster.h"

/* ---- roster.c ---- */

/* What roster_init() does, with size given and hosts that may have no ranks. */
int roster_make(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, int size, struct err *err);

/* Room for n members in all. -ENOMEM */
int roster_reserve(struct roster *r, int n);

void roster_note(struct roster *r, enum note_type type, int member, int code, const char *text);

/* The last lines of its stderr. */
void roster_take_tail(struct roster_member *m, const char *tail);

/* Applies one event to one member; -EPROTO where it is not legal. */
int roster_step(struct roster *r, int member, enum rank_event event, uint64_t now, struct err *err);

/* 0: the event is legal for the member now. -EPROTO: it is not, with the reason in err. */
int roster_check_step(const struct roster *r, int member, enum rank_event event, struct err *err);

/* A fresh member at a place of an agent, not yet started: its number, -ENOMEM. */
int roster_add_member(struct roster *r, int agent, int place);

/* Fills the next of r->agents, which has room for it, with a host and its first members. -ENOMEM */
int roster_add_agent(struct roster *r, const struct roster_host *host);

/* A member has said BYE, or is known to have, with so many operations finished: they stand. */
static inline void roster_note_done(struct roster *r, uint64_t done)
{
    r->left_done = done > r->left_done ? done : r->left_done;
}

/* ---- roster_epoch.c ---- */

/* Publishes the next epoch if it is time, announces what waits for a boundary. After every event.
 */
void roster_consider(struct roster *r, uint64_t now);

/* In the world and able to go on with it: it has the state. */
bool roster_survives(const struct roster_member *m);

/* Waits for a world to let it in. */
bool roster_is_joiner(const struct roster_member *m);

/* A joiner that waits to be let in at a boundary; it may have had a roster that did not come to be.
 */
bool roster_wants_in(const struct roster_member *m);

int roster_count(const struct roster *r, bool (*is)(const struct roster_member *m));

/* The world must not be smaller than this now: those whose program has ended are not missed. */
int roster_min_now(const struct roster *r);

/* The program has come to its end on some rank that was in the world. */
bool roster_is_finished(const struct roster *r);

/* Something that the next epoch will be the answer to. */
void roster_add_cause(struct roster *r, uint64_t now, const char *text);

/* ---- roster_arrivals.c ---- */

/* There are survivors: new members that have called hvd_init are told their place and start up. */
void roster_place_arrivals(struct roster *r);

/* Its end is an end of the program: it was in the world, or there never was one. Who comes to a
 * world and goes before it was let in is not missed there. */
bool roster_is_part(const struct roster *r, const struct roster_member *m);

/* The job has come to its end and it was never let in: why. */
void roster_describe_outsider(const struct roster *r, int member, uint64_t now, char *dst,
                              size_t size);

/* ---- roster_rebuild.c ---- */

/* Keeps what an agent of the job knows: 0 when it was the last one and the roster is whole again,
 * -EAGAIN: others are missing; -EINVAL: it cannot be. */
int roster_gather(struct roster *r, int agent, struct join_body *body, uint64_t now,
                  struct err *err);

void roster_rebuild(struct roster *r, uint64_t now);

/* ---- roster_change.c ---- */

/* Places on hosts that are neither lost nor drained, taken or not. */
int roster_count_places(const struct roster *r);

/* The target or who is wanted has changed: a number for it, and on to it. */
uint32_t roster_go(struct roster *r, uint64_t now);

/* Words for a change that is not announced yet. */
void roster_add_plan(struct roster *r, const char *text);

/* As many as there should be, after a rebuild: starts what is missing, sends away who is too many.
 */
void roster_fill(struct roster *r, uint64_t now);

/* A member failed: another one is to come in its place, if one is wanted. */
void roster_replace(struct roster *r, int member, uint64_t now);

/* One replacement less is to come. */
void roster_forget_start(struct roster *r);

/* Asks a member that is in no world to go; one that is in it goes at the next boundary. */
void roster_send_away(struct roster *r, int member, const char *text);

/* A rank that had left has called hvd_init() again. Another rank may have been started in its
 * place, or the job was made smaller: then as many ranks as are too many are asked to leave. */
void roster_came_back(struct roster *r);

/* Places on agents that live where a member can be started now. */
int roster_free_places(const struct roster *r);

/* The job has come to its end: nobody is to come any more. */
void roster_wind_down(struct roster *r, uint64_t now);

#endif
