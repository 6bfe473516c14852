/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: the rank's side of the bootstrap under hvd-agent, over the socket inherited from it.
 */
#ifndef HVD_BOOT_AGENT_H
#define HVD_BOOT_AGENT_H

#include "core/boot/boot.h"

/* Reads the body of a CTL_ROSTER into boot. -EPROTO: it does not parse; afterwards only boot_fini()
 * may be called. */
int boot_agent_roster(struct boot *boot, const uint8_t *body, size_t len, struct err *err);

/* Reads the body of a CTL_NUMBERS into boot->numbers. -EPROTO. */
int boot_agent_numbers(struct boot *boot, const uint8_t *body, size_t len, struct err *err);

#endif
