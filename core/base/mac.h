/* SPDX-License-Identifier: Apache-2.0
 *
 * mac: proofs that a sender knows the job's key, for handshakes (keyed BLAKE2b of libsodium).
 *
 * A proof covers a role (a word that separates the uses of a key) and parts. Each part is preceded
 * by its length, so that bytes cannot move from one part to the next. The same call derives keys:
 * without the key, a proof cannot be told from random bytes. Any thread.
 */
#ifndef HVD_BASE_MAC_H
#define HVD_BASE_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAC_KEY_SIZE   32
#define MAC_SIZE       32
#define MAC_NONCE_SIZE 32

struct mac_part {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
};

void mac_make(const uint8_t key[MAC_KEY_SIZE], const char *role, const struct mac_part *parts,
              size_t nparts, uint8_t ret_mac[MAC_SIZE]);

/* Compares in constant time. */
bool mac_check(const uint8_t key[MAC_KEY_SIZE], const char *role, const struct mac_part *parts,
               size_t nparts, const uint8_t mac[MAC_SIZE]);

/* Fills dst with random bytes, for a nonce, a key or a token. */
void mac_random(void *dst, size_t n);

/* Writes zeros that the compiler does not optimize away. */
void mac_wipe(void *dst, size_t n);

#endif
