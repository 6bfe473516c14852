/* SPDX-License-Identifier: Apache-2.0
 *
 * topology: runs in hvd-agent of the bundle before its main(). At its first use hwloc searches a
 * folder of the image for plug-ins, which were built for the image's hwloc and C library. This
 * first use happens here, with HWLOC_PLUGINS_PATH naming an empty folder; then the variable gets
 * the image's value back.
 */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "images/bundle/place.h"

#define VARIABLE "HWLOC_PLUGINS_PATH"

static hwloc_topology_t
    topology; /* while a topology exists hwloc does not search for plug-ins again */

__attribute__((constructor)) static void start_hwloc(void)
{
    const char *old = getenv(VARIABLE);
    char *copy = old ? strdup(old) : NULL;
    if (setenv(VARIABLE, BUNDLE_PLACE "/private/none", 1) == 0)
        hwloc_topology_init(&topology);
    if (copy)
        setenv(VARIABLE, copy, 1);
    else
        unsetenv(VARIABLE);
    free(copy);
}
