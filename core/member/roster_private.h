/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_private: declarations shared by the roster's files only. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_PRIVATE_H
#define HVD_MEMBER_ROSTER_PRIVATE_H

#include "core/member/roster.h"

/* ---- roster.c ---- */

/* Like roster_init(), but with a given size; hosts may have no ranks. */
int roster_make(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, int size, struct err *err);

void roster_note(struct roster *r, enum note_type type, int member, int code, const char *text);

/* Applies one event to one member. -EPROTO: the event is not legal in its state. */
int roster_step(struct roster *r, int member, enum rank_event event, uint64_t now, struct err *err);

/* 0: the event is legal for the member now. -EPROTO: it is not, with the reason in err. */
int roster_check_step(const struct roster *r, int member, enum rank_event event, struct err *err);

/* Creates a member in a slot of an agent, not yet started. Returns its number, or -ENOMEM. */
int roster_add_member(struct roster *r, int agent, int slot);

/* A member has said BYE and had finished so many operations: survivors must reach that number. */
static inline void roster_note_done(struct roster *r, uint64_t done)
{
    r->departed_done = done > r->departed_done ? done : r->departed_done;
}

/* ---- roster_epoch.c ---- */

/* Publishes the next epoch if its conditions hold, and announces changes that wait for a boundary.
 * Called after every event. */
void roster_consider(struct roster *r, uint64_t now);

/* The least size of the world now: min, less the members whose program has ended well. */
int roster_min_now(const struct roster *r);

/* True when the program has finished on some rank that was in the world. */
bool roster_is_finished(const struct roster *r);

/* ---- roster_arrivals.c ---- */

/* Called while there are survivors: sends NUMBERS to new members that have called hvd_init, so that
 * their programs can start up. */
void roster_number_arrivals(struct roster *r);

/* True when this member's end counts as an end of the program: it was in a world, or there never
 * was one. A joiner that ends before admission does not count. */
bool roster_is_part(const struct roster *r, const struct roster_member *m);

/* Describes why this joiner was never admitted before the job ended. */
void roster_describe_outsider(const struct roster *r, int member, uint64_t now, char *dst,
                              size_t size);

/* ---- roster_rebuild.c ---- */

/* Stores what an agent of the job knows. Returns 0 when it was the last agent and the roster is
 * complete again; -EAGAIN: other agents are missing; -EINVAL: the data is inconsistent. */
int roster_gather(struct roster *r, int agent, struct join_body *body, uint64_t now,
                  struct err *err);

void roster_rebuild(struct roster *r, uint64_t now);

/* ---- roster_change.c ---- */

/* Called after the target, or the set of wanted members, has changed: gives the planned change a
 * number and starts or removes members. */
uint32_t roster_apply_change(struct roster *r, uint64_t now);

/* Called after a rebuild: starts missing members and asks surplus ones to leave. */
void roster_fill(struct roster *r, uint64_t now);

/* A member has failed: schedules a replacement if the target needs one. */
void roster_replace(struct roster *r, int member, uint64_t now);

/* Cancels the newest scheduled replacement. */
void roster_forget_start(struct roster *r);

/* Marks a member as leaving. A member in no world is told at once; one in the world leaves at the
 * next boundary. */
void roster_ask_to_leave(struct roster *r, int member, const char *text);

/* A rank that had left has called hvd_init() again. Another rank may have been started in its
 * place, or the job was made smaller: then surplus ranks are asked to leave. */
void roster_came_back(struct roster *r);

/* The job ends: starts no further member and asks joiners to leave. */
void roster_wind_down(struct roster *r, uint64_t now);

#endif
