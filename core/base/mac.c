/* SPDX-License-Identifier: Apache-2.0
 *
 * mac: see mac.h.
 */
#include "core/base/mac.h"

#include <string.h>

#include <sodium.h>

_Static_assert(MAC_SIZE >= crypto_generichash_BYTES_MIN && MAC_SIZE <= crypto_generichash_BYTES_MAX,
               "size of a proof");
_Static_assert(MAC_KEY_SIZE >= crypto_generichash_KEYBYTES_MIN &&
                   MAC_KEY_SIZE <= crypto_generichash_KEYBYTES_MAX,
               "size of a key");

static void absorb(crypto_generichash_state *state, const void *data, size_t len)
{
    uint8_t head[8];
    for (size_t i = 0; i < sizeof(head); i++)
        head[i] = (uint8_t)((uint64_t)len >> (8 * i));
    crypto_generichash_update(state, head, sizeof(head));
    if (len)
        crypto_generichash_update(state, data, len);
}

void mac_make(const uint8_t key[MAC_KEY_SIZE], const char *role, const struct mac_part *parts,
              size_t nparts, uint8_t ret_mac[MAC_SIZE])
{
    /* libsodium's type needs more alignment than the compiler's stack guarantees. */
    _Alignas(64) crypto_generichash_state state;
    crypto_generichash_init(&state, key, MAC_KEY_SIZE, MAC_SIZE);
    absorb(&state, role, strlen(role));
    for (size_t i = 0; i < nparts; i++)
        absorb(&state, parts[i].data, parts[i].len);
    crypto_generichash_final(&state, ret_mac, MAC_SIZE);
    sodium_memzero(&state, sizeof(state));
}

bool mac_check(const uint8_t key[MAC_KEY_SIZE], const char *role, const struct mac_part *parts,
               size_t nparts, const uint8_t mac[MAC_SIZE])
{
    uint8_t want[MAC_SIZE];
    mac_make(key, role, parts, nparts, want);
    bool same = sodium_memcmp(want, mac, MAC_SIZE) == 0;
    sodium_memzero(want, sizeof(want));
    return same;
}

void mac_random(void *dst, size_t n)
{
    /* Idempotent and thread-safe; without it libsodium may choose a slower source of randomness. */
    if (sodium_init() >= 0)
        randombytes_buf(dst, n);
    else
        sodium_misuse();
}

void mac_wipe(void *dst, size_t n)
{
    sodium_memzero(dst, n);
}
