/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_page: requests of a stranger to the page: the first byte is where a text is cut, then come
 * path, host and a text of the API server, each with a NUL behind it. A job's name must be a valid
 * name, and JSON must be valid.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/page/page_private.h"
#include "operator/page/page_route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *next(const char **at, const char *end)
{
    const char *text = *at;
    *at += strlen(text) < (size_t)(end - text) ? strlen(text) + 1 : (size_t)(end - text);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    auto_free char *copy = calloc(1, size + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    const char *at = copy + 1, *end = copy + size;
    struct page_route r = page_route(next(&at, end));
    if (r.what == PAGE_JOB && (!r.name[0] || !r.namespace_[0] || strpbrk(r.name, "/<>\"'&% ")))
        abort();
    const char *host = next(&at, end);
    if (page_is_our_host(host) && host[strspn(host, "localhst:[].0123456789")])
        abort();
    json_t *text = page_text(at, data[0]);
    if (!text || json_string_length(text) > data[0])
        abort();
    auto_json json_t *list = json_pack("[o]", text);
    auto_free char *written = json_write(list);
    auto_json json_t *back = written ? json_loads(written, 0, NULL) : NULL;
    if (written && !json_equal(list, back))
        abort();
    return 0;
}
