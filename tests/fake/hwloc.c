/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc: a fake libhwloc.so.15 that only returns its version (script.h, FAKE_HWLOC), for tests of
 * hvd-probe.
 */
#include "tests/fake/script.h"

#define SCRIPT "FAKE_HWLOC"

unsigned hwloc_get_api_version(void);

unsigned hwloc_get_api_version(void)
{
    script_enter(SCRIPT, __func__, 0);
    return (unsigned)script_number(SCRIPT, "version", 0, 0x20800);
}
