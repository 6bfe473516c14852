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

/* The smallest value is the negative of the largest negative one. */
int vote_same(const struct vote *v, const uint32_t *mine, size_t n, bool *ret, struct err *err)
{
    int64_t words[2 * SAME_MAX];
    if (n > SAME_MAX)
        return err_set(err, EINVAL, "%zu words to compare, at most %d are possible", n, SAME_MAX);
    for (size_t i = 0; i < n; i++) {
        words[2 * i] = mine[i];
        words[2 * i + 1] = -(int64_t)mine[i];
    }
    int rc = vote_max(v, words, 2 * (int64_t)n, words, err);
    if (rc < 0)
        return rc;
    *ret = true;
    for (size_t i = 0; i < n; i++)
        *ret = *ret && words[2 * i] == -words[2 * i + 1];
    return 0;
}

int vote_well(const struct vote *v, int rank, const struct err *mine, struct err *err)
{
    struct err told = {0};
    int64_t failed = mine->code ? INT32_MAX - rank : 0;
    int64_t first = 0;
    int rc = vote_max(v, &failed, 1, &first, err);
    if (rc < 0 || first == 0)
        return rc;
    if (failed == first)
        err_set(&told, -mine->code, "rank %d: %s", rank, err_text(mine));
    rc = vote_union(v, (uint8_t *)&told, sizeof(told), err);
    if (rc < 0)
        return rc;
    *err = told;
    return told.code;
}
