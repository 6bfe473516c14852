/* SPDX-License-Identifier: Apache-2.0
 *
 * json: see json.h.
 */
#include "core/json/json.h"

#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"

/* ---- memory ---------------------------------------------------------------------------------
 * jansson's lexer ignores a failed allocation of its buffer: then a byte of a text is missing, and
 * if that was the closing quote, the lexer reads past the end. So this allocator notes a failure;
 * the first failure during json_read() gets the spare memory, and next_byte() delivers nothing
 * after it. */

static _Thread_local struct {
    bool failed;
    void *spare; /* NULL: none, or in use */
    void *used;  /* the spare memory while jansson has it */
    size_t size;
} memory;

static void *allocate(size_t size)
{
    void *p = malloc(size);
    if (p)
        return p;
    memory.failed = true;
    if (memory.spare && size <= memory.size) {
        memory.used = memory.spare;
        memory.spare = NULL;
        return memory.used;
    }
    return NULL;
}

static void release(void *p)
{
    if (p && p == memory.used)
        return; /* json_read() frees it */
    free(p);
}

static void install(void)
{
    json_set_alloc_funcs(allocate, release);
}

struct source {
    const char *text;
    size_t len;
};

/* One byte a call, so that no further byte is read ahead when an allocation fails. */
static size_t next_byte(void *dst, size_t size, void *arg)
{
    struct source *s = arg;
    if (s->len == 0 || size == 0 || memory.failed)
        return 0;
    *(char *)dst = *s->text++;
    s->len--;
    return 1;
}

int json_read(const char *text, size_t len, const char *what, json_t **ret, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct source source = {text, len};
    json_error_t je;
    pthread_once(&once, install);
    auto_free void *spare = malloc(2 * len + 64); /* as large as the lexer's buffer can become */
    if (!spare)
        return err_set(err, ENOMEM, "%s: no memory", what);
    memory.failed = false;
    memory.spare = spare;
    memory.size = 2 * len + 64;
    json_t *j = json_load_callback(next_byte, &source, JSON_REJECT_DUPLICATES, &je);
    if (memory.failed) {
        json_decref(j);
        j = NULL;
    }
    memory.spare = memory.used = NULL;
    if (memory.failed)
        return err_set(err, ENOMEM, "%s: no memory", what);
    if (!j)
        return err_set(err, EINVAL, "%s: line %d column %d: %s", what, je.line, je.column, je.text);
    *ret = j;
    return 0;
}

int json_expect(json_t *j, const char *what, struct err *err, const char *fmt, ...)
{
    json_error_t je;
    va_list ap;
    memory.failed = false;
    va_start(ap, fmt);
    int rc = json_vunpack_ex(j, &je, 0, fmt, ap);
    va_end(ap);
    if (rc < 0 && memory.failed)
        return err_set(err, ENOMEM, "%s: no memory", what);
    return rc == 0 ? 0 : err_set(err, EINVAL, "%s: %s", what, je.text);
}

void json_append(json_t **j, json_t *item)
{
    if (json_array_append_new(*j, item) == 0)
        return;
    json_decref(*j);
    *j = NULL;
}

void json_put(json_t **j, const char *key, json_t *item)
{
    if (json_object_set_new(*j, key, item) == 0)
        return;
    json_decref(*j);
    *j = NULL;
}

static int put_bytes(const char *bytes, size_t len, void *dst)
{
    struct buf *text = dst;
    buf_put(text, bytes, len);
    return text->failed ? -1 : 0;
}

char *json_write(const json_t *j)
{
    struct buf text = {0}; /* not json_dumps(), which loses bytes when an allocation fails */
    if (j && json_dump_callback(j, put_bytes, &text, JSON_COMPACT) == 0)
        buf_put(&text, "", 1);
    else
        text.failed = true;
    if (!text.failed)
        return (char *)text.data;
    buf_fini(&text);
    return NULL;
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

json_t *json_lossy_text(const char *text)
{
    return json_lossy_string(text ? text : "", text ? strlen(text) : 0);
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
    auto_json json_t *j = json_pack("{s:O}", "error", value);
    return json_write(j);
}
