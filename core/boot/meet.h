/* SPDX-License-Identifier: Apache-2.0
 *
 * meet: an exchange at a rendezvous with the user's key file, for the sources that have no key and
 * no channel of their own (env, slurm).
 */
#ifndef HVD_BOOT_MEET_H
#define HVD_BOOT_MEET_H

#include "core/boot/boot.h"

/* At the probe: the secret of HVD_KEY_FILE goes into key until the exchange, and has_key says
 * whether there is one. A world of 1 needs none. */
int boot_meet_key(struct boot *boot, struct err *err);

/* Fills cards and key. where is host:port, source the setting that says so. Without has_key only
 * loopback addresses will do, unless HVD_INSECURE=1; key is then a number that rank 0 draws: it
 * keeps jobs apart but is no secret. */
int boot_meet(struct boot *boot, const char *where, const char *source, const struct buf *card,
              uint64_t deadline, struct err *err);

#endif
