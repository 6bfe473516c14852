/* SPDX-License-Identifier: Apache-2.0
 *
 * claim: see claim.h.
 */
#include "core/negotiate/claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/negotiate/signature.h"

static void claim_free(struct claim *c)
{
    free(c->extras);
    rankset_fini(&c->ranks);
    free(c);
}

void claims_free(struct claim **claims)
{
    while (*claims) {
        struct claim *c = *claims;
        *claims = c->next;
        claim_free(c);
    }
}

void claims_drop_ids(struct claim **claims)
{
    for (struct claim **at = claims; *at;) {
        struct claim *c = *at;
        if (c->by_id) {
            *at = c->next;
            claim_free(c);
        } else {
            at = &c->next;
        }
    }
}

int claims_add(struct claim **claims, bool by_id, const struct signature *common,
               const struct rankset *ranks, struct claim **ret)
{
    struct claim **at = claims;
    for (; *at; at = &(*at)->next)
        if ((*at)->by_id == by_id && signature_equal(&(*at)->common, common))
            break;
    if (!*at) {
        struct claim *c = calloc(1, sizeof(*c));
        if (!c || rankset_init(&c->ranks, ranks->size) < 0) {
            free(c);
            return -ENOMEM;
        }
        c->by_id = by_id;
        c->common = *common;
        *at = c;
    }
    rankset_union(&(*at)->ranks, ranks);
    if (ret)
        *ret = *at;
    return 0;
}

int claim_set_extra(struct claim *c, int rank, int64_t dim0)
{
    size_t i = 0;
    while (i < c->nextras && c->extras[i].rank != rank)
        i++;
    if (i == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 4;
        struct extra *extras = realloc(c->extras, cap * sizeof(*extras));
        if (!extras)
            return -ENOMEM;
        c->extras = extras;
        c->cap = cap;
    }
    if (i == c->nextras)
        c->nextras++;
    c->extras[i] = (struct extra){.rank = rank, .dim0 = dim0};
    return 0;
}

int claims_move(struct claim **dst, struct claim **src)
{
    while (*src) {
        struct claim *from = *src, *to;
        int rc = claims_add(dst, from->by_id, &from->common, &from->ranks, &to);
        for (size_t i = 0; i < from->nextras && rc == 0; i++)
            rc = claim_set_extra(to, from->extras[i].rank, from->extras[i].dim0);
        if (rc < 0)
            return rc;
        *src = from->next;
        claim_free(from);
    }
    return 0;
}

void claims_write(const struct claim *claims, struct buf *b)
{
    uint16_t n = 0;
    for (const struct claim *c = claims; c; c = c->next)
        n++;
    buf_put_u16(b, n);
    for (const struct claim *c = claims; c; c = c->next) {
        buf_put_u8(b, c->by_id);
        if (!c->by_id)
            signature_write(&c->common, b);
        rankset_write(&c->ranks, b);
        buf_put_u32(b, (uint32_t)c->nextras);
        for (size_t i = 0; i < c->nextras; i++) {
            const struct extra *e = &c->extras[i];
            buf_put_u32(b, (uint32_t)e->rank);
            buf_put_u64(b, (uint64_t)e->dim0);
        }
    }
}

static int read_extra(struct claim *c, const struct rankset *ranks, struct reader *r)
{
    uint32_t rank = reader_u32(r);
    int64_t dim0 = (int64_t)reader_u64(r);
    if (rank >= (uint32_t)ranks->size || !rankset_has(ranks, (int)rank) || dim0 < 0)
        r->failed = true;
    return r->failed ? 0 : claim_set_extra(c, (int)rank, dim0);
}

/* Reads one claim; adds its ranks to *ranks. */
static int read_claim(struct claim **claims, const struct signature *cached, struct reader *r,
                      struct rankset *ranks)
{
    struct signature common = {0};
    bool by_id = reader_u8(r) != 0;
    if (!by_id)
        signature_read(&common, r);
    else if (cached)
        common = *cached;
    else
        r->failed = true;
    rankset_read(ranks, r);
    uint32_t nextras = reader_u32(r);
    bool extras = !by_id && signature_has_dim0(&common);
    if (r->failed || nextras != (extras ? (uint32_t)rankset_count(ranks) : 0)) {
        r->failed = true;
        return 0;
    }
    common = signature_common(&common);
    struct claim *c;
    int rc = claims_add(claims, by_id, &common, ranks, &c);
    for (uint32_t i = 0; i < nextras && rc == 0 && !r->failed; i++)
        rc = read_extra(c, ranks, r);
    return rc;
}

int claims_read(struct claim **claims, int size, const struct signature *cached, struct reader *r,
                struct rankset *ret_ranks)
{
    struct rankset one;
    if (rankset_init(&one, size) < 0)
        return -ENOMEM;
    rankset_clear(ret_ranks);
    int rc = 0;
    uint16_t n = reader_u16(r);
    for (uint16_t i = 0; i < n && rc == 0 && !r->failed; i++) {
        rc = read_claim(claims, cached, r, &one);
        if (rankset_next(&one, 0) < 0 || rankset_overlap(&one, ret_ranks))
            r->failed = true;
        rankset_union(ret_ranks, &one);
    }
    rankset_fini(&one);
    return rc;
}

/* Inserts c into a list sorted by first rank, or joins it with an equal claim. */
static void settle(struct claim **list, struct claim *c)
{
    for (struct claim *at = *list; at; at = at->next)
        if (signature_equal(&at->common, &c->common)) {
            rankset_union(&at->ranks, &c->ranks);
            claim_free(c);
            return;
        }
    int first = rankset_next(&c->ranks, 0);
    while (*list && rankset_next(&(*list)->ranks, 0) < first)
        list = &(*list)->next;
    c->next = *list;
    *list = c;
}

void claims_settle(struct claim **claims)
{
    struct claim *settled = NULL;
    /* Twice, because joining claims may have lowered a first rank. */
    for (int i = 0; i < 2; i++, settled = NULL) {
        while (*claims) {
            struct claim *c = *claims;
            *claims = c->next;
            settle(&settled, c);
        }
        *claims = settled;
    }
}

bool claims_agree(const struct claim *claims)
{
    for (const struct claim *c = claims; c && c->next; c = c->next)
        if (!signature_equal(&c->common, &c->next->common))
            return false;
    return true;
}

bool claims_of_one_world(const struct claim *claims)
{
    for (const struct claim *c = claims; c && c->next; c = c->next)
        if (c->common.world != c->next->common.world)
            return false;
    return true;
}

void claims_text(const struct claim *claims, const int *names, const char *name, char *text,
                 size_t size)
{
    bool one_kind = true, one_world = claims_of_one_world(claims);
    for (const struct claim *c = claims; c; c = c->next)
        one_kind = one_kind && signature_asked(&c->common) == signature_asked(&claims->common);
    const char *kind = claims && one_kind ? hvd_kind_name(signature_asked(&claims->common)) : "";
    int n = snprintf(text, size, "%s%s'%s'", kind, *kind ? " " : "", name);
    size_t len = n > 0 ? (size_t)n : 0;
    for (const struct claim *c = claims; c && len < size; c = c->next) {
        char ranks[120], what[200];
        rankset_text(&c->ranks, names, ranks, sizeof(ranks));
        signature_text(&c->common, what, sizeof(what));
        bool barrier = c->common.kind == HVD_BARRIER; /* signature_text() gave its kind already */
        n = snprintf(text + len, size - len, "%s rank %s: %s%s%s", c == claims ? ":" : ";", ranks,
                     one_kind || barrier ? "" : hvd_kind_name(signature_asked(&c->common)),
                     one_kind || barrier ? "" : " ", what);
        len += n > 0 ? (size_t)n : 0;
        if (one_world || len >= size)
            continue;
        n = snprintf(text + len, size - len, " in epoch %u", c->common.world);
        len += n > 0 ? (size_t)n : 0;
    }
}
