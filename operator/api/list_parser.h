/* SPDX-License-Identifier: Apache-2.0
 *
 * cutter: the items of a list, cut out of its bytes as they come in, one at a time: a page of 500
 * objects is never in memory as a whole. Pure. One owner (informer.c), one thread.
 *
 * It only counts brackets and quotes; whether an item is JSON is found out by whoever parses it,
 * and what stands round the items is parsed at the end.
 */
#ifndef HVD_OPERATOR_API_LIST_PARSER_H
#define HVD_OPERATOR_API_LIST_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define LIST_PARSER_ITEM_MAX (4u << 20)
#define LIST_PARSER_REST_MAX (64u << 10) /* kind, metadata: the page without its items */

/* One item, an object: len bytes, not NUL-terminated. Not 0 ends the feeding. */
typedef int list_parser_item_f(void *arg, const char *text, size_t len, struct err *err);

struct list_parser {
    enum { LIST_PARSER_AROUND, LIST_PARSER_ITEMS, LIST_PARSER_ITEM } where;
    int depth;          /* brackets open round the items, or within one */
    bool string;        /* inside quotes */
    bool escape;        /* after a backslash */
    bool value;         /* after the colon of a pair of the outermost object */
    bool seen;          /* the items */
    bool want, may_end; /* between items: one may come, the list may end */
    char key[8];        /* of that pair */
    size_t key_len;
    struct buf item; /* its beginning, when its end has not come */
    struct buf rest;
    list_parser_item_f *cb;
    void *arg;
};

/* What a page says beside its items. */
struct page {
    char version[128];   /* resourceVersion: where a watch goes on; opaque */
    char next[1u << 11]; /* the token of the next page, "" on the last */
};

void list_parser_init(struct list_parser *c, list_parser_item_f *cb, void *arg);
void list_parser_fini(struct list_parser *c);

/* -EINVAL: no list; -EMSGSIZE: too long; -ENOMEM; or what cb returned. Nothing may be fed after a
 * failure. */
int list_parser_feed(struct list_parser *c, const char *bytes, size_t n, struct err *err);

/* After the last byte. */
int list_parser_finish(struct list_parser *c, struct page *ret, struct err *err);

#endif
