/* SPDX-License-Identifier: Apache-2.0
 *
 * outlet: see outlet.h.
 */
#include "agent/outlet.h"

#include <stdio.h>

size_t outlet_say(struct outlet_loss *loss, const char *reader, char *dst, size_t size)
{
    int n = snprintf(dst, size, "hvdrun: %llu lines of output (%llu bytes) are missing here: %s\n",
                     (unsigned long long)loss->lines, (unsigned long long)loss->bytes, reader);
    *loss = (struct outlet_loss){0};
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}
