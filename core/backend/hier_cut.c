/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_cut: see hier.h.
 */
#include "core/backend/hier.h"

#define ALIGN ((size_t)16) /* of a part */
#define WIDER 2 /* the most that an element grows before it is sent: int16 is summed as int32 */

size_t hier_cut(const struct staged_chunk *chunk, int shards, size_t elem, struct hier_part *parts)
{
    size_t n = (size_t)shards, at = 0;
    for (size_t i = 0; i < chunk->n; i++) {
        parts[i].each = (chunk->pieces[i].count + n - 1) / n;
        parts[i].at = at;
        at += (parts[i].each * elem + ALIGN - 1) / ALIGN * ALIGN;
    }
    return at;
}

size_t hier_count(const struct hier_part *part, size_t count, int shard)
{
    size_t first = (size_t)shard * part->each;
    size_t left = first < count ? count - first : 0;
    return left < part->each ? left : part->each;
}

/* In bytes. Per piece of a chunk, a shard may exceed its even share by less than 2 * ALIGN: the
 * share is rounded up to whole elements, then to ALIGN. */
size_t hier_shard_max(int shards)
{
    return WIDER * STAGED_CHUNK / (size_t)shards + STAGED_PIECES * 2 * ALIGN;
}
