/* SPDX-License-Identifier: Apache-2.0
 *
 * ranklist: see ranklist.h.
 */
#include "core/negotiate/ranklist.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cleanup.h"

int ranklist_check(const char *what, const int *ranks, int n, int size, struct err *err)
{
    if (n < 1)
        return err_set(err, EINVAL, "%s: a set has at least one rank", what);
    auto_free bool *in = calloc((size_t)size, sizeof(*in));
    if (!in)
        return err_set(err, ENOMEM, "%s: no memory for a set", what);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return err_set(err, EINVAL, "%s: there is no rank %d in a job of %d", what, ranks[i],
                           size);
        if (in[ranks[i]])
            return err_set(err, EINVAL, "%s: rank %d is named twice", what, ranks[i]);
        in[ranks[i]] = true;
    }
    return 0;
}

int ranklist_find(const int *ranks, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return i;
    return -1;
}

/* The length of the run at the beginning of the list. A run of two is as long as two of one. */
static int run_length(const int *ranks, int n)
{
    int length = n < 2 ? n : 2;
    while (length >= 2 && length < n && ranks[length] - ranks[length - 1] == ranks[1] - ranks[0])
        length++;
    return length;
}

static uint32_t count_runs(const int *ranks, int n)
{
    uint32_t runs = 0;
    for (int i = 0; i < n; i += run_length(ranks + i, n - i))
        runs++;
    return runs;
}

size_t ranklist_bytes(const int *ranks, int n)
{
    return 4 + 12 * (size_t)count_runs(ranks, n);
}

void ranklist_write(const int *ranks, int n, struct buf *b)
{
    buf_put_u32(b, count_runs(ranks, n));
    for (int i = 0, length; i < n; i += length) {
        length = run_length(ranks + i, n - i);
        buf_put_u32(b, (uint32_t)ranks[i]);
        buf_put_u32(b, length > 1 ? (uint32_t)ranks[i + 1] - (uint32_t)ranks[i] : 0);
        buf_put_u32(b, (uint32_t)length);
    }
}

/* Appends a run. Returns the list's new length, or -EPROTO. */
static int add_run(struct reader *r, int size, int *ranks, int n)
{
    uint32_t rank = reader_u32(r), step = reader_u32(r), length = reader_u32(r);
    if (r->failed || length < 1 || length > (uint32_t)(size - n))
        return -EPROTO;
    for (uint32_t i = 0; i < length; i++, rank += step) {
        if (rank >= (uint32_t)size)
            return -EPROTO;
        ranks[n++] = (int)rank;
    }
    return n;
}

int ranklist_read_to(struct reader *r, int size, int *ret_ranks)
{
    uint32_t runs = reader_u32(r);
    int n = 0;
    if (r->failed || runs < 1 || runs > (uint32_t)size)
        return -EPROTO;
    for (uint32_t i = 0; i < runs && n >= 0; i++)
        n = add_run(r, size, ret_ranks, n);
    return n;
}

int ranklist_read(struct reader *r, int size, int **ret_ranks)
{
    auto_free int *ranks = calloc((size_t)size, sizeof(*ranks));
    if (!ranks)
        return -ENOMEM;
    int n = ranklist_read_to(r, size, ranks);
    if (n > 0)
        *ret_ranks = TAKE(ranks);
    return n;
}

void ranklist_text(const int *ranks, int n, char *text, size_t size)
{
    int i = 0;
    size_t at = (size_t)snprintf(text, size, n == 1 ? "rank" : "ranks");
    for (; i < n && at + 40 < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s %d", i ? "," : "", ranks[i]);
    if (i < n)
        snprintf(text + at, size - at, " and %d more", n - i);
}
