/* SPDX-License-Identifier: Apache-2.0
 *
 * together: a meeting point of a test's ranks that does not use what is tested. In shared memory
 * (world_shared). Tests only.
 */
#ifndef HVD_TESTS_HARNESS_TOGETHER_H
#define HVD_TESTS_HARNESS_TOGETHER_H

#include <stdatomic.h>
#include <time.h>

struct together {
    _Atomic int came[2];
    _Atomic unsigned turn;
};

/* Waits until all `size` ranks are here. If a rank has ended, the parent's time limit ends the
 * wait. */
static inline void together(struct together *t, int size)
{
    unsigned turn = atomic_load(&t->turn);
    if (atomic_fetch_add(&t->came[turn % 2], 1) + 1 == size) {
        atomic_store(&t->came[turn % 2], 0);
        atomic_store(&t->turn, turn + 1);
    }
    while (atomic_load(&t->turn) == turn)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

#endif
