/* SPDX-License-Identifier: Apache-2.0
 *
 * set_record: see set_record.h.
 */
#include "core/engine/set_record.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/rule.h"
#include "core/negotiate/ranklist.h"

enum { HAS_RANKS = 1, IS_FIXED = 2, IS_BY_RULE = 4 };

static void put_head(int number, uint8_t flags, const char *name, struct buf *out)
{
    size_t length = name ? strlen(name) : 0;
    buf_put_u32(out, (uint32_t)number);
    buf_put_u8(out, flags);
    buf_put_u16(out, (uint16_t)length);
    buf_put(out, name, length);
}

void set_record_put(int number, const char *name, bool fixed, const int *list, int n,
                    struct buf *out)
{
    put_head(number, (uint8_t)((n > 0 ? HAS_RANKS : 0) | (fixed ? IS_FIXED : 0)), name, out);
    if (n > 0)
        ranklist_write(list, n, out);
}

void set_record_put_rule(int number, const char *rule, struct buf *out)
{
    put_head(number, IS_BY_RULE, rule, out);
}

/* A set by rule has a rule that can be read, and nothing else. */
static bool fits(uint8_t flags, const char *name)
{
    struct rule rule;
    struct err unused;
    return !(flags & IS_BY_RULE) || (flags == IS_BY_RULE && rule_parse(name, &rule, &unused) == 0);
}

int set_record_read(struct reader *r, int most, struct set_record *ret, struct err *err)
{
    *ret = (struct set_record){.number = 0};
    uint32_t number = reader_u32(r);
    uint8_t flags = reader_u8(r);
    size_t length = reader_u16(r);
    const void *name = length <= HVD_MAX_NAME ? reader_bytes(r, length) : NULL;
    int n = name && flags & HAS_RANKS ? ranklist_read(r, most, &ret->list) : 0;
    if (n < 0 || !name || r->failed || number == 0 || number > INT32_MAX)
        return err_set(err, n == -ENOMEM ? ENOMEM : EPROTO, "the table of sets cannot be read");
    memcpy(ret->name, name, length);
    if (!fits(flags, ret->name))
        return err_set(err, EPROTO, "the table of sets has a rule that cannot be read");
    ret->number = (int)number;
    ret->fixed = flags & IS_FIXED;
    ret->by_rule = flags & IS_BY_RULE;
    ret->n = n;
    return 0;
}

void set_record_fini(struct set_record *record)
{
    free(record->list);
    *record = (struct set_record){.number = 0};
}
