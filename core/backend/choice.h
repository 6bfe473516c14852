/* SPDX-License-Identifier: Apache-2.0
 *
 * choice: which back ends a job uses. Pure: takes what each rank wants and has, and returns one
 * list, which is the same on every rank.
 *
 * HVD_BACKEND is "auto" (the default) or a list of names, the preferred one first. A name other
 * than the last may be missing on this machine: then the next one is used. A rank's list is the
 * front part of its card; cards of other ranks are untrusted bytes.
 */
#ifndef HVD_BACKEND_CHOICE_H
#define HVD_BACKEND_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

/* The back ends, with their numbers on the wire. */
enum { BACKEND_HOST, BACKEND_MPI, BACKEND_NCCL, BACKEND_STAGED, BACKENDS };

extern const char *const backend_names[BACKENDS]; /* in HVD_BACKEND */

#define BACKEND_TEXT_MAX       480 /* bytes of a rank's text about one back end */
#define BACKEND_NAMES_MAX      80  /* bytes of a list of names */
#define BACKEND_SAID_BYTES_MAX (1 + BACKENDS * (4 + BACKEND_TEXT_MAX)) /* of backend_said_put() */

/* A list of back ends. n == 0: auto. */
struct backend_wish {
    int n;
    uint8_t list[BACKENDS];
};

/* Parses the value of HVD_BACKEND. text NULL: auto. -EINVAL: an
 * unknown name (err lists the known ones), a name twice, or a text that is too long. */
int backend_wish_parse(const char *text, struct backend_wish *ret, struct err *err);

/* The back end of this name; BACKENDS: there is none. */
int backend_find(const char *name);

/* Writes a wish as in HVD_BACKEND: "auto", "mpi,host". */
void backend_wish_text(const struct backend_wish *w, char *dst, size_t size);

/* What a rank reports: its list, and for each back end in it (except the host) whether this rank
 * can use it. */
struct backend_said {
    struct backend_wish wish;
    struct {
        bool here;
        char text[BACKEND_TEXT_MAX]; /* name and version, or why this rank cannot use it */
    } of[BACKENDS];                  /* of[i] is about wish.list[i] */
};

void backend_said_put(const struct backend_said *said, struct buf *out);

/* Parses a rank's report and removes it from the front of buf. -EPROTO: it is malformed. */
int backend_said_take(struct buf *buf, struct backend_said *ret, struct err *err);

struct backend_choice {
    struct backend_wish use;           /* the back ends to open, never the host; n == 0: none */
    char note[BACKEND_TEXT_MAX + 160]; /* why a wanted back end is not used; empty: all are */
};

/* Chooses. -EINVAL: the ranks want different back ends; -ENOENT: a wanted one is missing on a
 * rank, or differs between ranks. err names the ranks. */
int backend_choose(const struct backend_said *said, int size, struct backend_choice *ret,
                   struct err *err);

#endif
