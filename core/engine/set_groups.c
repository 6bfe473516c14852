/* SPDX-License-Identifier: Apache-2.0
 *
 * set_groups: see set_groups.h.
 */
#include "core/engine/set_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/mac.h"
#include "core/engine/engine.h"
#include "core/engine/rule.h"
#include "core/engine/rule_functions.h"
#include "core/engine/vote.h"

int set_groups_compute(const char *rule, const struct world *w, int *ret_groups, struct err *err)
{
    const struct hvd_roster roster = {
        .size = w->size, .hosts = w->hosts, .local_ranks = w->local_ranks, .places = w->places};
    struct rule parsed;
    struct rule_function f = {.call = NULL};
    int rc = rule_parse(rule, &parsed, err);
    if (rc == 0 && parsed.kind == RULE_FUNCTION)
        rc = rule_function_find(parsed.name, &f, err);
    return rc == 0 ? rule_divide(&parsed, &f, &roster, ret_groups, err) : rc;
}

/* All ranks get what one of them has computed: a group + 2 for each rank; 0: that rank was lost
 * before. */
static int share(const struct vote *v, const int *groups, int n, bool tells, uint32_t *ret,
                 struct err *err)
{
    memset(ret, 0, (size_t)n * sizeof(*ret));
    for (int r = 0; tells && r < n; r++)
        ret[r] = (uint32_t)(groups[r] + 2);
    return vote_union(v, (uint8_t *)ret, (size_t)n * sizeof(*ret), err);
}

static void say_group(uint32_t group, char *text, size_t size)
{
    if (group == 1)
        snprintf(text, size, "no group");
    else
        snprintf(text, size, "group %u", group - 2);
}

static int say_difference(const char *rule, const uint32_t *one, const uint32_t *other, int n,
                          int teller, struct err *err)
{
    char texts[2][32];
    int r = 0;
    while (r < n && one[r] == other[r])
        r++;
    if (r == n || one[r] == 0 || other[r] == 0) /* one of the two ranks was lost meanwhile */
        return err_set(err, EINVAL,
                       "the ranks compute different groups by the rule '%.80s': it has to give the "
                       "same on every rank",
                       rule);
    say_group(one[r], texts[0], sizeof(texts[0]));
    say_group(other[r], texts[1], sizeof(texts[1]));
    return err_set(err, EINVAL,
                   "the ranks compute different groups by the rule '%.80s': rank 0 puts rank %d "
                   "into %s, rank %d puts it into %s; the rule has to give the same on every rank",
                   rule, r, texts[0], teller, texts[1]);
}

/* Tells all ranks what rank 0 has computed, and the lowest rank that has computed something else.
 */
static int tell(const struct vote *v, const char *rule, const struct world *w, const int *groups,
                struct err *err)
{
    size_t n = (size_t)w->size;
    auto_free uint32_t *one = calloc(2 * n, sizeof(*one));
    uint32_t *other = one + n;
    if (!one) /* the other ranks wait for this one */
        return err_set(err, ENOMEM, "no memory for the groups of %d ranks", w->size);
    int rc = share(v, groups, w->size, w->rank == 0, one, err);
    int64_t mark = 0;
    for (int r = 0; rc == 0 && r < w->size; r++)
        if (one[r] != (uint32_t)(groups[r] + 2))
            mark = INT32_MAX - w->rank;
    if (rc == 0)
        rc = vote_max(v, &mark, 1, &mark, err);
    int teller = (int)(INT32_MAX - mark);
    if (rc == 0)
        rc = share(v, groups, w->size, w->rank == teller, other, err);
    if (rc < 0)
        return rc;
    say_difference(rule, one, other, w->size, teller, err);
    return 1;
}

int set_groups_compare(const struct vote *v, const char *rule, const struct world *w,
                       const int *groups, const struct err *mine, struct err *err)
{
    static const uint8_t no_key[MAC_KEY_SIZE];
    uint8_t mac[MAC_SIZE];
    uint32_t words[MAC_SIZE / 4];
    bool same = false;
    const struct mac_part part = {groups, (size_t)w->size * sizeof(*groups)};
    mac_make(no_key, "hvd groups", &part, 1, mac);
    memcpy(words, mac, sizeof(words));
    int rc = vote_well(v, w->rank, mine, err);
    if (rc < 0)
        return v->engine->failed ? rc : 1;
    rc = vote_same(v, w->rank, mine, words, MAC_SIZE / 4, &same, err);
    return rc == 0 && !same ? tell(v, rule, w, groups, err) : rc;
}
