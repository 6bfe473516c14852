/* SPDX-License-Identifier: Apache-2.0
 *
 * keyfile: the secret that a user gives to all ranks in a file (HVD_KEY_FILE).
 *
 * The file has at least 32 bytes, raw or as hex digits (white space around them is ignored). "head
 * -c 32 /dev/urandom > key" or "openssl rand -hex 32 > key" makes one.
 */
#ifndef HVD_BOOT_KEYFILE_H
#define HVD_BOOT_KEYFILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/mac.h"

/* Reads the file into a key of fixed size. Logs a warning when other users may read the file. */
int keyfile_read(const char *path, uint8_t ret_key[MAC_KEY_SIZE], struct err *err);

/* Reads the file that HVD_KEY_FILE names. 0; 1: the variable is not set; -errno. */
int keyfile_from_env(uint8_t ret_key[MAC_KEY_SIZE], struct err *err);

/* Derives the key of one run from the user's secret and the random bytes of the session: two jobs
 * with the same key file refuse each other's connections. */
void keyfile_derive(const uint8_t key[MAC_KEY_SIZE], const uint8_t session[MAC_NONCE_SIZE],
                    uint8_t ret_job_key[MAC_KEY_SIZE]);

#endif
