/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: see thread.h.
 */
#include "core/base/thread.h"

#include <signal.h>
#include <stddef.h>

int thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
