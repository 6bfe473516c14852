/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_kubelist: a page of a list, cut in two places. The result must not depend on the cuts. If
 * the parser accepts the page, jansson must accept it too and find the same items.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/api/list_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_item(void *arg, const char *text, size_t len, struct err *err)
{
    json_t *items = arg, *j = NULL;
    int rc = json_read(text, len, "an item", &j, err);
    if (rc == 0)
        json_array_append_new(items, j);
    return rc;
}

static int cut(const char *text, size_t len, size_t one, size_t two, json_t *items)
{
    struct list_parser c;
    struct page page = {.version = "", .next = ""};
    struct err err = {0};
    list_parser_init(&c, on_item, items);
    int rc = list_parser_feed(&c, text, one, &err);
    if (rc == 0)
        rc = list_parser_feed(&c, text + one, two - one, &err);
    if (rc == 0)
        rc = list_parser_feed(&c, text + two, len - two, &err);
    if (rc == 0)
        rc = list_parser_finish(&c, &page, &err);
    if (rc == 0 ? !page.version[0] : !err.msg[0])
        abort();
    list_parser_fini(&c);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t len = size - 2, one = data[0] * len / 256, two = one + data[1] * (len - one) / 256;
    auto_json json_t *items = json_array(), *other = json_array();
    auto_json json_t *whole = NULL;
    int rc = cut(text, len, one, two, items);
    if (cut(text, len, 0, len, other) != rc || (rc == 0 && !json_equal(items, other)))
        abort(); /* the result depends on where the bytes were split */
    int plain = json_read(text, len, "all of it", &whole, NULL);
    if (rc == 0 && plain < 0)
        abort();
    json_t *want = json_object_get(whole, "items");
    if (rc == 0 && !json_is_null(want) && !json_equal(want, items))
        abort();
    return 0;
}
