/* SPDX-License-Identifier: Apache-2.0
 *
 * choice: which back ends a job uses. Pure: what each rank wants and has in, one list out, the same
 * on every rank that is given the same.
 *
 * HVD_BACKEND is "auto" (the default) or a list of names, the preferred one first. A name that is
 * not the last one may be missing on this machine: the next one stands in for it. What a rank says
 * travels in front of its card and is foreign bytes.
 */
#ifndef HVD_BACKEND_CHOICE_H
#define HVD_BACKEND_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define BACKENDS_MAX      6   /* in the table */
#define BACKEND_TEXT_MAX  480 /* what a rank has to say of one */
#define BACKEND_NAMES_MAX 80  /* a list, written out */

/* Places in the table; 0 is the host. n == 0: auto. */
struct backend_wish {
    int n;
    uint8_t list[BACKENDS_MAX];
};

/* names: the table's, ends with NULL. text NULL: auto. -EINVAL, with the names there are. */
int backend_wish_parse(const char *text, const char *const *names, struct backend_wish *ret,
                       struct err *err);

/* "auto", "mpi,host" */
void backend_wish_text(const struct backend_wish *w, const char *const *names, char *dst,
                       size_t size);

/* What a rank says: what it wants, and of each of these (of the host nothing) whether it is there.
 */
struct backend_said {
    struct backend_wish wish;
    struct {
        bool here;
        char text[BACKEND_TEXT_MAX]; /* name and version, or why not */
    } of[BACKENDS_MAX];              /* as wish.list */
};

void backend_said_put(const struct backend_said *said, struct buf *out);

/* Takes it off the front of buf. -EPROTO. */
int backend_said_take(struct buf *buf, const char *const *names, struct backend_said *ret,
                      struct err *err);

struct backend_choice {
    struct backend_wish use;           /* what is to be opened: never the host; n == 0: nothing */
    char note[BACKEND_TEXT_MAX + 160]; /* why one that was asked for is not used; empty: none */
};

/* -EINVAL: the ranks want different things; -ENOENT: what is wanted is not there, or not the same,
 * on every rank. err names the ranks. */
int backend_choose(const struct backend_said *said, int size, const char *const *names,
                   struct backend_choice *ret, struct err *err);

#endif
