/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_set_record: the table of sets that a joiner reads (engine/set_record.h), in a job that keeps
 * places (first byte 0) or of so many ranks. What was read is written again, and reads the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/boot/boot.h"
#include "core/engine/rule.h"
#include "core/engine/set_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_list(const struct set_record *a, int most)
{
    if ((a->n > 0) != (a->list != NULL) || a->n > most || a->number < 1 ||
        strlen(a->name) > HVD_MAX_NAME)
        abort();
    for (int i = 0; i < a->n; i++)
        if (a->list[i] < 0 || a->list[i] >= most)
            abort();
}

/* A set by rule has nothing but a rule, whose groups can be computed. */
static void check_rule(const struct set_record *a)
{
    enum { SIZE = 3 };
    static const int hosts[SIZE] = {0, 0, 1};
    const struct hvd_roster roster = {
        .size = SIZE, .hosts = hosts, .local_ranks = hosts, .places = hosts};
    struct rule rule;
    struct err err;
    int groups[SIZE], ranks[SIZE];
    if (!a->by_rule)
        return;
    if (a->n > 0 || a->fixed || rule_parse(a->name, &rule, &err) < 0 || rule.k < 0)
        abort();
    if (rule.kind == RULE_FUNCTION)
        return;
    if (rule_divide(&rule, NULL, &roster, groups, &err) < 0 ||
        rule_group_of(groups, SIZE, 1, ranks) < 1)
        abort();
}

static void write_again(const struct set_record *a, int most)
{
    struct set_record b;
    struct buf out = {0};
    struct err err;
    if (a->by_rule)
        set_record_put_rule(a->number, a->name, &out);
    else
        set_record_put(a->number, a->name, a->fixed, a->list, a->n, &out);
    struct reader r = reader_over(out.data, out.len);
    if (out.failed || set_record_read(&r, most, &b, &err) < 0 || !reader_ok(&r))
        abort();
    if (a->number != b.number || strcmp(a->name, b.name) != 0 || a->fixed != b.fixed ||
        a->by_rule != b.by_rule || a->n != b.n ||
        (a->n > 0 && memcmp(a->list, b.list, (size_t)a->n * sizeof(*a->list)) != 0))
        abort();
    set_record_fini(&b);
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > BOOT_CARD_MAX)
        return 0;
    int most = data[0] ? data[0] : BOOT_SIZE_MAX, rc = 0;
    struct reader r = reader_over(data + 1, size - 1);
    while (rc == 0 && r.pos < r.len) {
        struct set_record record;
        struct err err;
        rc = set_record_read(&r, most, &record, &err);
        if (rc == 0) {
            check_list(&record, most);
            check_rule(&record);
            write_again(&record, most);
        }
        set_record_fini(&record);
    }
    return 0;
}
