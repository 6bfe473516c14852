/* SPDX-License-Identifier: Apache-2.0
 *
 * hash: a fast 64-bit hash for tables in memory. Not for security (base/mac.h is), never stored.
 */
#ifndef HVD_BASE_HASH_H
#define HVD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    return h ^ h >> 32;
}

static inline uint64_t hash_bytes(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t h = hash_mix(n + 0x9e3779b97f4a7c15ULL);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = hash_mix(h ^ word);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    return hash_mix(h ^ tail);
}

static inline uint64_t hash_str(const char *s)
{
    return hash_bytes(s, strlen(s));
}

#endif
