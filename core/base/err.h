/* SPDX-License-Identifier: Apache-2.0
 *
 * err: an error with a message for a person.
 *
 * Functions return 0 or a negative errno. A function whose failure needs a reason also takes a
 * struct err, as its last argument; it may be NULL. Any thread; the caller owns it. A message is
 * one line: control characters in it become blanks.
 */
#ifndef HVD_BASE_ERR_H
#define HVD_BASE_ERR_H

#include <errno.h>

struct err {
    int code; /* negative errno, 0: no error */
    char msg[1024];
};

/* Fills err (unless NULL) and returns -errnum, so that "return err_set(err, EINVAL, ...)" reads
 * as one statement. errnum is positive. */
int err_set(struct err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": <strerror(errnum)>" appended. */
int err_sys(struct err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<text>: " before the present message. Returns the present code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The message, or "no error". */
const char *err_text(const struct err *err);

#ifdef __clang_analyzer__
/* clang-tidy does not look into err.c: this tells it that the result is negative. */
#define err_set(err, errnum, ...) (err_set(err, errnum, __VA_ARGS__), -(errnum))
#define err_sys(err, errnum, ...) (err_sys(err, errnum, __VA_ARGS__), -(errnum))
#endif

#endif
