/* SPDX-License-Identifier: Apache-2.0
 *
 * vote: what the engine itself lets ranks agree on: small collectives of its own, of the world or
 * of a set. Each rank of it has to call. Any thread, without the progress lock; blocks as
 * hvd_wait() does.
 */
#ifndef HVD_ENGINE_VOTE_H
#define HVD_ENGINE_VOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct engine;

/* Which ranks take part, and under which name. */
struct vote {
    struct engine *engine;
    int set; /* 0: the world */
    const char *name;
};

/* The largest value of each of n words over all ranks. mine may be ret. */
int vote_max(const struct vote *v, const int64_t *mine, int64_t n, int64_t *ret, struct err *err);

/* The bitwise "or" of all ranks' n bytes, in place. Where each rank fills in bytes of its own and
 * leaves the others 0, all get all. */
int vote_union(const struct vote *v, uint8_t *bytes, size_t n, struct err *err);

/* Every rank says how something went for it (code 0: well). Returns 0 if it went well on all;
 * otherwise the error of the lowest rank that failed, on every rank; one of another kind than
 * -ETIMEDOUT and -ECONNRESET, if there is one. rank: this rank's number. */
int vote_well(const struct vote *v, int rank, const struct err *mine, struct err *err);

/* vote_well(), and compares n words (at most VOTE_WORDS). *ret_same: all ranks have the same words.
 * If not, the result is 0 however it went. */
#define VOTE_WORDS 16

/* Whether a rank has failed only because another one did not answer: the other error is told first.
 */
bool vote_by_another(const struct err *err);

/* For a rank that others ask for its part in vote_same() and that refuses (engine/join): `all`
 * holds n neutral elements, and vote_refuse() writes the refusal into it. If then vote_tells() is
 * true for the reduced result, this rank contributes vote_telling() to the next collective. */
void vote_refuse(int64_t *all, size_t n, int rank, const struct err *mine);
bool vote_tells(const int64_t *all, size_t n, int rank, const struct err *mine);
void vote_telling(struct err *ret, int rank, const struct err *mine);

int vote_same(const struct vote *v, int rank, const struct err *mine, const uint32_t *words,
              size_t n, bool *ret_same, struct err *err);

#endif
