/* SPDX-License-Identifier: Apache-2.0
 *
 * err: see err.h.
 */
#include "core/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The text may contain untrusted bytes. A terminal obeys control characters, among them those of
 * two bytes (C1). */
static void clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < ' ' || *p == 0x7f)
            *p = ' ';
        else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
            p[0] = p[1] = '?';
    }
}

static void vformat(struct err *err, const char *fmt, va_list ap)
{
    /* Formats into a copy: the arguments may point into err->msg. */
    char text[sizeof(err->msg)];
    vsnprintf(text, sizeof(text), fmt, ap);
    clean(text);
    memcpy(err->msg, text, sizeof(text));
}

int(err_set)(struct err *err, int errnum, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vformat(err, fmt, ap);
        va_end(ap);
        err->code = -errnum;
    }
    return -errnum;
}

int(err_sys)(struct err *err, int errnum, const char *fmt, ...)
{
    if (err) {
        char reason[128];
        va_list ap;
        va_start(ap, fmt);
        vformat(err, fmt, ap);
        va_end(ap);
        err->code = -errnum;
        size_t len = strlen(err->msg);
        snprintf(err->msg + len, sizeof(err->msg) - len, ": %s",
                 strerror_r(errnum, reason, sizeof(reason)));
    }
    return -errnum;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    if (!err)
        return 0;
    struct err head;
    va_list ap;
    va_start(ap, fmt);
    vformat(&head, fmt, ap);
    va_end(ap);
    size_t len = strlen(head.msg);
    size_t room = sizeof(head.msg) - len - 1;
    size_t rest = strnlen(err->msg, sizeof(err->msg) - 1);
    if (room > 2) {
        memcpy(head.msg + len, ": ", 2);
        rest = rest < room - 2 ? rest : room - 2;
        memcpy(head.msg + len + 2, err->msg, rest);
        head.msg[len + 2 + rest] = '\0';
    }
    memcpy(err->msg, head.msg, sizeof(err->msg));
    return err->code;
}

const char *err_text(const struct err *err)
{
    return err && err->code ? err->msg : "no error";
}
