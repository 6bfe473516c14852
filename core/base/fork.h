/* SPDX-License-Identifier: Apache-2.0
 *
 * fork: threads whose fork(2) is this library's own business. A program's fork() waits until nobody
 * is inside hvd_init() (engine/life.c); what hvd_init() itself waits for must not.
 */
#ifndef HVD_BASE_FORK_H
#define HVD_BASE_FORK_H

#include <stdbool.h>

/* Set by a thread of ours that calls libraries which start processes (MPI). */
extern _Thread_local bool fork_is_ours;

#endif
