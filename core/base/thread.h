/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: starts threads of this library inside the user's program.
 */
#ifndef HVD_BASE_THREAD_H
#define HVD_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(), but the thread blocks all signals, which belong to the program's own
 * threads. 0 or a positive errno. */
int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

#endif
