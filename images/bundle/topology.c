/* SPDX-License-Identifier: Apache-2.0
 *
 * topology: in hvd-agent of the bundle, before its main(): hwloc looks for plug-ins once, when it
 * is first used, in a folder of the image. Those were made for the image's hwloc and C library, not
 * for ours: it is shown a folder where there are none. The variable is the image's again
 * afterwards.
 */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "images/bundle/place.h"

#define VARIABLE "HWLOC_PLUGINS_PATH"

static hwloc_topology_t kept; /* as long as there is one hwloc does not look again */

__attribute__((constructor)) static void start_hwloc(void)
{
    const char *old = getenv(VARIABLE);
    char *copy = old ? strdup(old) : NULL;
    if (setenv(VARIABLE, BUNDLE_PLACE "/private/none", 1) == 0)
        hwloc_topology_init(&kept);
    if (copy)
        setenv(VARIABLE, copy, 1);
    else
        unsetenv(VARIABLE);
    free(copy);
}
