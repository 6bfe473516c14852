/* SPDX-License-Identifier: Apache-2.0
 *
 * set_call: see set_call.h.
 */
#include "core/engine/set_call.h"

#include <stdio.h>
#include <string.h>

#include "core/base/mac.h"
#include "core/negotiate/ranklist.h"

_Static_assert(2 + MAC_SIZE / 4 <= VOTE_WORDS, "a call does not fit into a vote");

enum { ADDS, REMOVES, SPLITS };

static void digest(struct set_call *call, const void *data, size_t len)
{
    static const uint8_t no_key[MAC_KEY_SIZE];
    uint8_t mac[MAC_SIZE];
    const struct mac_part part = {data, len};
    mac_make(no_key, "hvd set", &part, 1, mac);
    memcpy(&call->words[2], mac, MAC_SIZE);
}

void set_call_add(struct set_call *call, const int *ranks, int n)
{
    char list[128] = "no rank";
    n = n > 0 ? n : 0;
    *call = (struct set_call){.words = {ADDS, (uint32_t)n}};
    digest(call, ranks, (size_t)n * sizeof(*ranks));
    if (n > 0)
        ranklist_text(ranks, n, list, sizeof(list));
    snprintf(call->text, sizeof(call->text), "adds %s", list);
}

void set_call_split(struct set_call *call, const char *rule)
{
    *call = (struct set_call){.words = {SPLITS}};
    digest(call, rule, strlen(rule));
    snprintf(call->text, sizeof(call->text), "divides the ranks by '%.80s'", rule);
}

void set_call_remove(struct set_call *call, int set)
{
    *call = (struct set_call){.words = {REMOVES, (uint32_t)set}};
    snprintf(call->text, sizeof(call->text), "removes set %d", set);
}

/* Tells all ranks what rank 0 has called, and the lowest rank that has called something else. */
static int disagree(const struct vote *v, const struct set_call *call, int rank, struct err *err)
{
    char texts[2][sizeof(call->text)] = {"", ""};
    if (rank == 0)
        memcpy(texts[0], call->text, sizeof(call->text));
    int rc = vote_union(v, (uint8_t *)texts[0], sizeof(texts[0]), err);
    int64_t other = rc == 0 && strcmp(call->text, texts[0]) != 0 ? INT32_MAX - rank : 0;
    if (rc == 0)
        rc = vote_max(v, &other, 1, &other, err);
    int second = (int)(INT32_MAX - other);
    if (other > 0 && second == rank)
        memcpy(texts[1], call->text, sizeof(call->text));
    if (rc == 0)
        rc = vote_union(v, (uint8_t *)texts[1], sizeof(texts[1]), err);
    if (rc < 0)
        return rc;
    if (other == 0) /* long lists of ranks that differ at their ends */
        return err_set(err, EINVAL, "the ranks ask for different sets");
    return err_set(
        err, EINVAL,
        "the ranks ask for different sets: rank 0 %.150s, rank %d %.150s; all ranks have to "
        "add and remove the same sets in the same order",
        texts[0][0] ? texts[0] : "is in hvd_join()", second, texts[1]);
}

int set_call_compare(const struct vote *v, const struct set_call *call, int rank,
                     const struct err *mine, struct err *err)
{
    bool same = false;
    int rc = vote_same(v, rank, mine, call->words, 2 + MAC_SIZE / 4, &same, err);
    return rc == 0 && !same ? disagree(v, call, rank, err) : rc;
}
