/* SPDX-License-Identifier: Apache-2.0
 *
 * fork: marks threads whose fork(2) is hvd's own. A fork() of the user's program waits until no
 * thread is inside hvd_init() (engine/life.c); a fork() that hvd_init() itself needs must not wait
 * for that.
 */
#ifndef HVD_BASE_FORK_H
#define HVD_BASE_FORK_H

#include <stdbool.h>

/* Set by a thread of hvd that calls libraries which start processes (MPI). */
extern _Thread_local bool fork_is_ours;

#endif
