/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/object: managedFields are left out, and nothing else.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/api/object.h"

#define FIELDS "\"managedFields\""

static void prune(const char *text, char *dst)
{
    dst[object_prune(text, strlen(text), dst)] = '\0';
}

static void test_table(void **state)
{
    static const struct {
        const char *text, *want; /* want NULL: unchanged */
    } rows[] = {
        {"{" FIELDS ":[{\"a\":1}]}", "{}"},
        {"{" FIELDS ":[{\"a\":\"]}\\\"]\"}],\"b\":2}", "{\"b\":2}"},
        {"{\"a\":1," FIELDS ":[]}", "{\"a\":1}"},
        {"{\"a\":1 , " FIELDS " : [1,[2]] , \"b\":2}", "{\"a\":1 ,  \"b\":2}"},
        {"{\"a\":1\n,\n" FIELDS ":[]\n}", "{\"a\":1\n\n}"},
        {"[{" FIELDS ":[]},{" FIELDS ":[]}]", "[{},{}]"},
        {"{" FIELDS ":[]," FIELDS ":[],\"b\":2}", "{\"b\":2}"},
        {"", NULL},
        {"{}", NULL},
        {"{" FIELDS ":null}", NULL},
        {"{" FIELDS ":{\"a\":1}}", NULL},
        {"{\"a\":" FIELDS "}", NULL},
        {"{\"managedFieldsX\":[1]}", NULL},
        {"{\"a\":\"\\\"managedFields\\\":[1]\"}", NULL},
        {"{\"a\":\",\\\"managedFields\\\":[1]\"}", NULL},
        {"{\"a,\\\"managedFields\":[1]}", NULL},
        /* truncated: the parser reports it */
        {"{" FIELDS, NULL},
        {"{" FIELDS ":", NULL},
        {"{" FIELDS ":[", NULL},
        {"{" FIELDS ":[\"", NULL},
        {"{" FIELDS ":[\"\\", NULL},
        {"{" FIELDS ":[]", NULL},
        {FIELDS ":[]", NULL},
    };
    char dst[256];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        prune(rows[i].text, dst);
        assert_string_equal(dst, rows[i].want ? rows[i].want : rows[i].text);
    }
}

static void test_read(void **state)
{
    static const char pod[] =
        "{\"metadata\":{\"name\":\"x\",\"managedFields\":[{\"fieldsV1\":{\"f:a\":{}}}],"
        "\"uid\":\"u\"},\"spec\":{}}";
    struct err err = {0};
    const char *why;
    auto_json json_t *j = NULL, *torn = NULL;
    (void)state;
    assert_int_equal(object_read(pod, sizeof(pod) - 1, "a pod", &j, &why, &err), 0);
    assert_int_equal(json_object_size(j), 2);
    assert_int_equal(json_object_size(json_object_get(j, "metadata")), 2);
    for (size_t n = 0; n < sizeof(pod) - 1;
         n++) { /* each in its own allocation, so that ASan sees overreads */
        char *part = malloc(n + 1);
        assert_non_null(part);
        memcpy(part, pod, n);
        assert_int_equal(object_read(part, n, "a pod", &torn, &why, &err), -EINVAL);
        free(part);
    }
    assert_non_null(strstr(err_text(&err), "a pod"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
