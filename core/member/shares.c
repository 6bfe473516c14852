/* SPDX-License-Identifier: Apache-2.0
 *
 * shares: see shares.h.
 */
#include "core/member/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

#define BUCKETS 1024

struct share {
    struct share *next;
    size_t used; /* > 0 */
    char user[SHARES_NAME_MAX];
};

/* Returns the place of the pointer to the user's entry, or to where it belongs. */
static struct share **find(const struct shares *s, const char *user)
{
    struct share **at = &s->table[hash_bytes(user, strnlen(user, SHARES_NAME_MAX - 1)) % BUCKETS];
    while (*at && strncmp((*at)->user, user, SHARES_NAME_MAX - 1) != 0)
        at = &(*at)->next;
    return at;
}

size_t shares_of(const struct shares *s, const char *user)
{
    struct share **at = s->table ? find(s, user) : NULL;
    return at && *at ? (*at)->used : 0;
}

bool shares_allow(const struct shares *s, const char *user, size_t n)
{
    size_t left = s->total > s->used ? s->total - s->used : 0;
    size_t most = s->divisor ? left / s->divisor : 0;
    return n <= left && shares_of(s, user) + n <= (most > s->floor ? most : s->floor);
}

bool shares_force(struct shares *s, const char *user, size_t n)
{
    if (!s->table && !(s->table = calloc(BUCKETS, sizeof(struct share *))))
        return false;
    struct share **at = find(s, user);
    if (!*at && n > 0) {
        struct share *new = calloc(1, sizeof(*new));
        if (!new)
            return false;
        snprintf(new->user, sizeof(new->user), "%s", user);
        *at = new;
    }
    if (*at)
        (*at)->used += n;
    s->used += n;
    return true;
}

bool shares_take(struct shares *s, const char *user, size_t n)
{
    return shares_allow(s, user, n) && shares_force(s, user, n);
}

void shares_give(struct shares *s, const char *user, size_t n)
{
    struct share **at = s->table ? find(s, user) : NULL;
    if (!at || !*at)
        return;
    struct share *one = *at;
    n = n < one->used ? n : one->used;
    s->used -= n;
    one->used -= n;
    if (one->used == 0) {
        *at = one->next;
        free(one);
    }
}

void shares_fini(struct shares *s)
{
    for (int i = 0; s->table && i < BUCKETS; i++)
        for (struct share *one = s->table[i], *next; one; one = next) {
            next = one->next;
            free(one);
        }
    free(s->table);
    s->table = NULL;
    s->used = 0;
}
