/* SPDX-License-Identifier: Apache-2.0
 *
 * boot_rendezvous: exchanges cards at a rendezvous with the user's key file, for the sources whose
 * launcher offers neither a key nor a channel (env, slurm, mpirun, torchrun).
 */
#ifndef HVD_BOOT_BOOT_RENDEZVOUS_H
#define HVD_BOOT_BOOT_RENDEZVOUS_H

#include "core/boot/boot.h"

/* Called in probe(): reads HVD_KEY_FILE into boot->key, for the exchange, and sets has_key. A job
 * of one rank needs no key. */
int boot_rendezvous_key(struct boot *boot, struct err *err);

/* Fills cards and key. where is host:port, source the setting that it came from. Without has_key,
 * where must be a loopback address unless HVD_INSECURE=1; key is then a random number of rank 0,
 * which separates jobs but is no secret. */
int boot_rendezvous(struct boot *boot, const char *where, const char *source,
                    const struct buf *card, uint64_t deadline, struct err *err);

#endif
