/* SPDX-License-Identifier: Apache-2.0
 *
 * json: see json.h.
 */
#include "core/json/json.h"

#include <sodium.h>
#include <stdarg.h>
#include <string.h>

int json_read(const char *text, size_t len, const char *what, json_t **ret, struct err *err)
{
    json_error_t je;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!j)
        return err_set(err, EINVAL, "%s: line %d column %d: %s", what, je.line, je.column, je.text);
    *ret = j;
    return 0;
}

int json_expect(json_t *j, const char *what, struct err *err, const char *fmt, ...)
{
    json_error_t je;
    va_list ap;
    va_start(ap, fmt);
    int rc = json_vunpack_ex(j, &je, 0, fmt, ap);
    va_end(ap);
    return rc == 0 ? 0 : err_set(err, EINVAL, "%s: %s", what, je.text);
}

char *json_write(const json_t *j)
{
    return j ? json_dumps(j, JSON_COMPACT) : NULL;
}

json_t *json_lossy_string(const char *bytes, size_t len)
{
    json_t *j = json_stringn(bytes, len); /* NULL: not UTF-8 */
    if (j)
        return j;
    char *copy = malloc(len + 1);
    if (!copy)
        return NULL;
    for (size_t i = 0; i < len; i++)
        copy[i] = (signed char)bytes[i] < 0 ? '?' : bytes[i];
    j = json_stringn(copy, len);
    free(copy);
    return j;
}

json_t *json_bytes(const void *bytes, size_t len)
{
    size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    char *text = malloc(size);
    if (!text)
        return NULL;
    sodium_bin2base64(text, size, bytes, len, sodium_base64_VARIANT_ORIGINAL);
    json_t *j = json_string(text);
    free(text);
    return j;
}

int json_bytes_read(const char *text, const char *field, void *dst, size_t dst_size,
                    size_t *ret_len, struct err *err)
{
    const char *end;
    size_t n = strlen(text);
    if (n > sodium_base64_ENCODED_LEN(dst_size, sodium_base64_VARIANT_ORIGINAL))
        return err_set(err, EINVAL, "%s: more than %zu bytes", field, dst_size);
    if (sodium_base642bin(dst, dst_size, text, n, NULL, ret_len, &end,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        *end)
        return err_set(err, EINVAL, "%s: not base64, or more than %zu bytes", field, dst_size);
    return 0;
}

char *json_error_body(const char *text)
{
    auto_json json_t *value = json_lossy_string(text, strlen(text));
    auto_json json_t *j = json_pack("{s:O?}", "error", value);
    return json_write(j);
}
