/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_kubewatch: the bytes of a watch, split in two places; and each line as a lease and as the
 * output of a credential plugin.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "operator/api/event.h"
#include "operator/api/exec.h"
#include "operator/api/lease.h"
#include "operator/api/lines.h"
#include "operator/api/object.h"
#include "operator/objects/stamp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_others(const char *line, size_t len)
{
    struct lease lease, back;
    struct exec_credential c = {0};
    struct err err = {0};
    if (exec_parse(line, len, "v1", &c, &err) == 0 ? !c.token && !c.cert_pem : !err.msg[0])
        abort();
    exec_credential_fini(&c);
    err.msg[0] = '\0';
    if (lease_parse(line, len, &lease, &err) < 0) {
        if (!err.msg[0])
            abort();
        return;
    }
    /* A lease that is written and read again must be equal. It cannot be read again if a year in
     * its times does not have four digits. */
    char *text = lease_body(&lease, "ns", "name");
    if (text && lease_parse(text, strlen(text), &back, &err) == 0 &&
        (strcmp(back.holder, lease.holder) != 0 || back.transitions != lease.transitions ||
         back.renewed_us != lease.renewed_us))
        abort();
    free(text);
}

/* Removes the lists named managedFields at every level. */
static void leave_out(json_t *j)
{
    const char *key;
    json_t *value;
    void *next;
    size_t i;
    if (json_is_array(json_object_get(j, "managedFields")))
        json_object_del(j, "managedFields");
    json_object_foreach_safe(j, next, key, value) leave_out(value);
    json_array_foreach(j, i, value) leave_out(value);
}

/* object_read() must give what json_read() gives without the lists named managedFields, and must
 * read nothing beyond the end of the line. */
static void as_object(const char *line, size_t len)
{
    auto_json json_t *whole = NULL, *part = NULL;
    const char *why;
    char *text = malloc(len);
    if (!text)
        return;
    memcpy(text, line, len);
    int rc = json_read(text, len, "a line", &whole, NULL);
    if (rc == 0 && object_read(text, len, "a line", &part, &why, NULL) < 0)
        abort();
    leave_out(whole);
    leave_out(part); /* a name in another spelling, with \u0046, is kept */
    if (rc == 0 && !json_equal(whole, part))
        abort();
    free(text);
}

static int on_line(void *arg, const char *line, size_t len, struct err *err)
{
    struct event e;
    struct err why = {0};
    uint64_t *sum = arg;
    (void)err;
    if (len == 0 || memchr(line, '\n', len))
        abort();
    if (event_parse(line, len, &e, &why) == 0) {
        if (!e.version || !e.message || !json_is_object(e.object))
            abort();
        event_fini(&e);
    } else if (!why.msg[0]) {
        abort();
    }
    as_others(line, len);
    as_object(line, len);
    *sum = hash_mix(*sum ^ hash_bytes(line, len));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lines l = {0};
    uint64_t split = 0, whole = 0;
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t len = size - 2, one = data[0] * len / 256, two = one + data[1] * (len - one) / 256;
    lines_feed(&l, text, one, on_line, &split, NULL);
    lines_feed(&l, text + one, two - one, on_line, &split, NULL);
    lines_feed(&l, text + two, len - two, on_line, &split, NULL);
    lines_fini(&l);
    lines_feed(&l, text, len, on_line, &whole, NULL);
    lines_fini(&l);
    if (split != whole)
        abort();
    return 0;
}
