/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: the rank's side of the bootstrap under hvd-agent, over the socket it inherited.
 */
#ifndef HVD_BOOT_AGENT_H
#define HVD_BOOT_AGENT_H

#include "core/boot/boot.h"

/* Takes the body of a CTL_ROSTER: everything but the sources of an exchange. -EPROTO for what does
 * not parse; boot may be fini'd then, nothing else. */
int boot_agent_roster(struct boot *boot, const uint8_t *body, size_t len, struct err *err);

/* Takes the body of a CTL_PLACE into boot->place. -EPROTO. */
int boot_agent_place(struct boot *boot, const uint8_t *body, size_t len, struct err *err);

#endif
