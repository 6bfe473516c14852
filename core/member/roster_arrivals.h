/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_arrivals: new members that start while other ranks train. Each gets provisional numbers at
 * once, starts up by itself, and sends a card that says "enter" when it is ready. Only then does it
 * wait for admission at a boundary. See roster.h.
 */
#ifndef HVD_MEMBER_ROSTER_ARRIVALS_H
#define HVD_MEMBER_ROSTER_ARRIVALS_H

#include "core/member/roster_private.h"

/* Called while there are survivors: sends NUMBERS to new members that have called hvd_init, so that
 * their programs can start up. */
void roster_number_arrivals(struct roster *r);

#endif
