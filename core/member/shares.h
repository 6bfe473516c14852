/* SPDX-License-Identifier: Apache-2.0
 *
 * shares: divides a resource (connections, bytes) among its users by name, so that no user takes
 * what the others need. A user may have at most the free amount divided by `divisor`: the scarcer
 * the resource, the smaller the share, and some is always free for a user that has none. `floor` is
 * granted in any case while there is enough. Pure; one owner, one thread.
 */
#ifndef HVD_MEMBER_SHARES_H
#define HVD_MEMBER_SHARES_H

#include <stdbool.h>
#include <stddef.h>

#define SHARES_NAME_MAX 72 /* bytes with NUL; longer names are cut */

struct share;

struct shares {
    size_t total, used;
    size_t divisor; /* 0: floor is the limit of every user */
    size_t floor;
    struct share **table; /* owned; NULL until the first call */
};

/* False: the user's share is used up, or there is no memory; nothing was taken. */
bool shares_take(struct shares *s, const char *user, size_t n);

/* Returns whether shares_take() would take it. */
bool shares_allow(const struct shares *s, const char *user, size_t n);

/* Takes it even if the user's share is used up. False: no memory. */
bool shares_force(struct shares *s, const char *user, size_t n);

/* Returns what was taken, in one or several parts. */
void shares_give(struct shares *s, const char *user, size_t n);

size_t shares_of(const struct shares *s, const char *user);

void shares_fini(struct shares *s);

#endif
