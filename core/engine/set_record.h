/* SPDX-License-Identifier: Apache-2.0
 *
 * set_record: a set in the table of sets (set_table.h). In bytes it is {u32 number, u8 flags, u16
 * length of the name, name, list of ranks or places (negotiate/ranklist)}. Pure.
 */
#ifndef HVD_ENGINE_SET_RECORD_H
#define HVD_ENGINE_SET_RECORD_H

#include <stdbool.h>

#include <hvd.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct set_record {
    int number;                  /* > 0 */
    char name[HVD_MAX_NAME + 1]; /* empty: it has none */
    bool fixed;
    bool by_rule; /* the name is its rule, and it has no list */
    int *list;    /* [n] ranks or places; owned. NULL: n is 0 */
    int n;
};

void set_record_put(int number, const char *name, bool fixed, const int *list, int n,
                    struct buf *out);
void set_record_put_rule(int number, const char *rule, struct buf *out);

/* Reads a record, which is untrusted. The list has at most `most` entries, all in 0 ... most - 1;
 * one may be in it twice. *ret is to be freed with set_record_fini(), also after a failure.
 * -EPROTO; -ENOMEM. */
int set_record_read(struct reader *r, int most, struct set_record *ret, struct err *err);

void set_record_fini(struct set_record *record);

#endif
