/* SPDX-License-Identifier: Apache-2.0
 *
 * rankset: see rankset.h.
 */
#include "core/negotiate/rankset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t words(const struct rankset *s)
{
    return ((size_t)s->size + 63) / 64;
}

int rankset_init(struct rankset *s, int size)
{
    s->size = size;
    s->bits = calloc(words(s) ? words(s) : 1, sizeof(uint64_t));
    return s->bits ? 0 : -ENOMEM;
}

void rankset_fini(struct rankset *s)
{
    free(s->bits);
    *s = (struct rankset){0};
}

void rankset_clear(struct rankset *s)
{
    memset(s->bits, 0, words(s) * sizeof(uint64_t));
}

void rankset_union(struct rankset *dst, const struct rankset *src)
{
    for (size_t i = 0; i < words(dst); i++)
        dst->bits[i] |= src->bits[i];
}

void rankset_subtract(struct rankset *dst, const struct rankset *src)
{
    for (size_t i = 0; i < words(dst); i++)
        dst->bits[i] &= ~src->bits[i];
}

bool rankset_equal(const struct rankset *a, const struct rankset *b)
{
    return memcmp(a->bits, b->bits, words(a) * sizeof(uint64_t)) == 0;
}

bool rankset_within(const struct rankset *a, const struct rankset *b)
{
    for (size_t i = 0; i < words(a); i++)
        if (a->bits[i] & ~b->bits[i])
            return false;
    return true;
}

bool rankset_overlap(const struct rankset *a, const struct rankset *b)
{
    for (size_t i = 0; i < words(a); i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
}

int rankset_count(const struct rankset *s)
{
    int n = 0;
    for (size_t i = 0; i < words(s); i++)
        n += __builtin_popcountll(s->bits[i]);
    return n;
}

int rankset_next(const struct rankset *s, int rank)
{
    for (size_t i = (size_t)rank >> 6; rank < s->size; i++, rank = (int)(i << 6)) {
        uint64_t left = s->bits[i] >> (rank & 63);
        if (left)
            return rank + __builtin_ctzll(left);
    }
    return -1;
}

/* Finds the first rank of the set that is >= from, and the last rank of the range that begins
 * there. */
static bool next_range(const struct rankset *s, int from, int *ret_first, int *ret_last)
{
    int first = rankset_next(s, from);
    if (first < 0)
        return false;
    int last = first;
    while (last + 1 < s->size && rankset_has(s, last + 1))
        last++;
    *ret_first = first;
    *ret_last = last;
    return true;
}

void rankset_write(const struct rankset *s, struct buf *b)
{
    uint32_t n = 0;
    int first, last;
    for (int at = 0; next_range(s, at, &first, &last); at = last + 1)
        n++;
    buf_put_u32(b, n);
    for (int at = 0; next_range(s, at, &first, &last); at = last + 1) {
        buf_put_u32(b, (uint32_t)first);
        buf_put_u32(b, (uint32_t)last);
    }
}

void rankset_read(struct rankset *s, struct reader *r)
{
    rankset_clear(s);
    uint32_t n = reader_u32(r);
    int64_t at = 0;
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        uint32_t first = reader_u32(r), last = reader_u32(r);
        if (first < at || last < first || last >= (uint32_t)s->size) {
            r->failed = true;
            return;
        }
        for (uint32_t rank = first; rank <= last; rank++)
            rankset_add(s, (int)rank);
        at = (int64_t)last + 1;
    }
}

void rankset_text(const struct rankset *s, const int *names, char *text, size_t size)
{
    size_t len = 0;
    int last;
    if (size)
        text[0] = '\0';
    for (int first = rankset_next(s, 0); first >= 0; first = rankset_next(s, last + 1)) {
        char piece[32];
        const char *comma = len ? "," : "";
        int from = rank_name(names, first);
        for (last = first; last + 1 < s->size && rankset_has(s, last + 1); last++)
            if (rank_name(names, last + 1) != from + (last + 1 - first))
                break;
        int n = first == last
                    ? snprintf(piece, sizeof(piece), "%s%d", comma, from)
                    : snprintf(piece, sizeof(piece), "%s%d-%d", comma, from, from + last - first);
        if (len + (size_t)n + 4 > size) {
            if (len + 4 <= size)
                memcpy(text + len, "...", 4);
            return;
        }
        memcpy(text + len, piece, (size_t)n + 1);
        len += (size_t)n;
    }
}
