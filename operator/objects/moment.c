/* SPDX-License-Identifier: Apache-2.0
 *
 * moment: see moment.h.
 */
#include "operator/objects/moment.h"

#include <errno.h>
#include <string.h>

#include "operator/objects/stamp.h"

int moment_parse(const char *text, int64_t *ret)
{
    int64_t us;
    if (!text || !*text) {
        *ret = MOMENT_NONE;
        return 0;
    }
    if (stamp_parse(text, &us) < 0 || us < 0 || memcmp(text, "1970", 4) < 0 || text[10] == ' ')
        return -EINVAL;
    *ret = us / (STAMP_SECOND / MOMENT_S);
    return 0;
}

void moment_write(int64_t moment, char dst[MOMENT_SIZE])
{
    _Static_assert(MOMENT_SIZE >= STAMP_MAX, "a stamp has room");
    stamp_text(moment / MOMENT_S * STAMP_SECOND, dst);
    memcpy(strchr(dst, '.'), "Z", 2);
}
