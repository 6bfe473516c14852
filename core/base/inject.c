/* SPDX-License-Identifier: Apache-2.0
 *
 * inject: see inject.h.
 */
#include "core/base/inject.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/env.h"

void inject_point(const char *place)
{
    static _Atomic int times;
    const char *wanted = env_get("TEST_FAIL");
    size_t n = strlen(place);
    if (!wanted || strncmp(wanted, place, n) != 0 || (wanted[n] && wanted[n] != ':'))
        return;
    int at = wanted[n] ? atoi(wanted + n + 1) : 1;
    if (atomic_fetch_add(&times, 1) + 1 == at)
        raise(SIGKILL);
}
