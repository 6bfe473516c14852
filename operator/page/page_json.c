/* SPDX-License-Identifier: Apache-2.0
 *
 * page_json: see page_private.h.
 */
#include <stdlib.h>

#include "core/base/utf8.h"
#include "operator/page/page_private.h"

json_t *page_text(const char *text, size_t max)
{
    size_t n = text ? strnlen(text, max) : 0;
    while (n > 0 && n == max && utf8_inside((unsigned char)text[n]))
        n = --max;
    return json_lossy_string(text ? text : "", n);
}

void page_put(json_t *j, struct buf *dst)
{
    char *text = json_write(j);
    json_decref(j);
    if (text)
        buf_put(dst, text, strlen(text));
    else
        dst->failed = true;
    free(text);
}
