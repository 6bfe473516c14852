/* SPDX-License-Identifier: Apache-2.0
 *
 * list_parser: splits the bytes of a list response into its items as they arrive, so that a page of
 * 500 objects is never in memory as a whole. Pure. One owner (informer.c), one thread.
 *
 * Only counts brackets and quotes. The callback parses the items as JSON; list_parser_finish()
 * parses the rest of the list.
 */
#ifndef HVD_OPERATOR_API_LIST_PARSER_H
#define HVD_OPERATOR_API_LIST_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define LIST_PARSER_ITEM_MAX (4u << 20)
#define LIST_PARSER_REST_MAX (64u << 10) /* bytes of the list without its items: kind, metadata */

/* Gets one item, an object of len bytes, not NUL-terminated. A result other than 0 ends
 * list_parser_feed(). */
typedef int list_parser_item_f(void *arg, const char *text, size_t len, struct err *err);

struct list_parser {
    enum { LIST_PARSER_AROUND, LIST_PARSER_ITEMS, LIST_PARSER_ITEM } where;
    int depth;          /* open brackets, outside the items or within the current one */
    bool string;        /* inside quotes */
    bool escape;        /* after a backslash */
    bool value;         /* after the colon of a member of the outermost object */
    bool seen;          /* "items" has been parsed */
    bool want, may_end; /* between items: another one may follow, the list may end */
    char key[8];        /* the name of the current member of the outermost object */
    size_t key_len;
    struct buf item; /* the beginning of an incomplete item */
    struct buf rest;
    list_parser_item_f *cb;
    void *arg;
};

/* The metadata of a page of the list. */
struct page {
    char version[128];   /* resourceVersion, at which a watch starts */
    char next[1u << 11]; /* continue token of the next page, "" on the last */
};

void list_parser_init(struct list_parser *c, list_parser_item_f *cb, void *arg);
void list_parser_fini(struct list_parser *c);

/* -EINVAL: no list; -EMSGSIZE: too long; -ENOMEM; or the result of cb. Must not be called again
 * after a failure. */
int list_parser_feed(struct list_parser *c, const char *bytes, size_t n, struct err *err);

/* Call it after the last byte. */
int list_parser_finish(struct list_parser *c, struct page *ret, struct err *err);

#endif
