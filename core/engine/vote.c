/* SPDX-License-Identifier: Apache-2.0
 *
 * vote: see vote.h.
 */
#include "core/engine/vote.h"

#include "core/engine/fast.h"

#define SAME_MAX 32

static int run(const struct vote *v, const void *in, void *out, int64_t n, enum hvd_dtype dtype,
               enum hvd_op op, struct err *err)
{
    const struct hvd_request r = {.kind = HVD_ALLREDUCE,
                                  .name = v->name,
                                  .input = in,
                                  .output = out,
                                  .dtype = dtype,
                                  .ndim = 1,
                                  .shape = &n,
                                  .op = op,
                                  .device = -1,
                                  .set = v->set};
    return fast_run(v->engine, &r, FAST_OWN, err);
}

int vote_max(const struct vote *v, const int64_t *mine, int64_t n, int64_t *ret, struct err *err)
{
    return run(v, mine, ret, n, HVD_INT64, HVD_MAX, err);
}

int vote_union(const struct vote *v, uint8_t *bytes, size_t n, struct err *err)
{
    return run(v, bytes, bytes, (int64_t)n, HVD_UINT8, HVD_BOR, err);
}

void vote_telling(struct err *ret, int rank, const struct err *mine)
{
    *ret = (struct err){0};
    err_set(ret, -mine->code, "rank %d: %s", rank, err_text(mine));
}

/* All ranks get the error of the rank whose mark is the largest one. */
static int tell(const struct vote *v, int rank, const struct err *mine, bool teller,
                struct err *err)
{
    struct err told = {0};
    if (teller)
        vote_telling(&told, rank, mine);
    int rc = vote_union(v, (uint8_t *)&told, sizeof(told), err);
    if (rc < 0)
        return rc;
    if (told.code == 0)
        return err_set(err, EAGAIN, "a rank that has failed was lost before it could say why");
    *err = told;
    return told.code;
}

bool vote_by_another(const struct err *err)
{
    return err->code == -ETIMEDOUT || err->code == -ECONNRESET;
}

/* Which error is told: that of the rank with the largest mark, so of the lowest rank; a rank that
 * failed because of another one comes last. */
static int64_t mark_of(int rank, const struct err *mine)
{
    if (mine->code == 0)
        return 0;
    return (vote_by_another(mine) ? 0 : (int64_t)1 << 32) + INT32_MAX - rank;
}

void vote_refuse(int64_t *all, size_t n, int rank, const struct err *mine)
{
    all[n - 1] = mark_of(rank, mine);
}

/* Whether all ranks that called have the same words. */
static bool same_words(const int64_t *all, size_t n)
{
    bool same = true;
    for (size_t i = 0; i < n; i++)
        same = same && all[2 * i] == -all[2 * i + 1];
    return same;
}

bool vote_tells(const int64_t *all, size_t n, int rank, const struct err *mine)
{
    return same_words(all, n / 2) && all[n - 1] == mark_of(rank, mine);
}

/* The smallest value of a word is the negative of the largest negative one. The last word is the
 * mark. */
int vote_same(const struct vote *v, int rank, const struct err *mine, const uint32_t *words,
              size_t n, bool *ret_same, struct err *err)
{
    int64_t all[2 * VOTE_WORDS + 1], mark = mark_of(rank, mine);
    n = n < VOTE_WORDS ? n : VOTE_WORDS;
    for (size_t i = 0; i < n; i++) {
        all[2 * i] = words[i];
        all[2 * i + 1] = -(int64_t)words[i];
    }
    all[2 * n] = mark;
    int rc = vote_max(v, all, 2 * (int64_t)n + 1, all, err);
    if (rc < 0)
        return rc;
    *ret_same = same_words(all, n);
    if (!*ret_same || all[2 * n] == 0)
        return 0;
    return tell(v, rank, mine, all[2 * n] == mark, err);
}

int vote_well(const struct vote *v, int rank, const struct err *mine, struct err *err)
{
    bool same;
    return vote_same(v, rank, mine, NULL, 0, &same, err);
}
