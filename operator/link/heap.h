/* SPDX-License-Identifier: Apache-2.0
 *
 * heap: keeps the resident memory of hvd-operator and hvd-plane small after a burst. Called once by
 * each, at its start.
 */
#ifndef HVD_OPERATOR_LINK_HEAP_H
#define HVD_OPERATOR_LINK_HEAP_H

#include "core/base/loop.h"

/* Returns large blocks to the system as soon as they are freed, and gives threads of libraries no
 * heaps of their own. */
void heap_bound(void);

/* Returns the memory of small objects to the system every 2 s. */
void heap_trim(struct loop *loop, struct loop_timer *timer);

#endif
