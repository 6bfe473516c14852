/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: threads of this library in somebody else's program.
 */
#ifndef HVD_BASE_THREAD_H
#define HVD_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(), with all signals blocked there: they are for the program's own threads. 0 or
 * a positive errno. */
int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

#endif
