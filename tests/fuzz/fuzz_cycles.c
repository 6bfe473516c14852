/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_cycles: any bytes as what blocked ranks tell rank 0 and ask each other. What was read is
 * valid and is written as it was read; each report is a whole text.
 *
 * Input: steps: u8 what, then a message: u8 length, bytes; or few bytes from which a valid message
 * is made, so that the graph gets cycles; or a pause.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/negotiate/cycles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 6, PERIOD = 1000 };

static void on_say(void *ctx, const char *text)
{
    size_t len = strlen(text);
    if (len >= CYCLES_TEXT || len < 10 || strcmp(text + len - 10, "all ranks.") != 0)
        abort();
}

static void question(const uint8_t *data, size_t len)
{
    struct asked a;
    struct buf out = {0};
    struct reader r = reader_over(data, len);
    if (asked_read(&r, RANKS, &a) < 0)
        return;
    if (a.set < 0 || a.asker < 0 || a.asker >= RANKS || a.peer < 0 || a.peer >= RANKS)
        abort();
    asked_write(&a, &out);
    if (!out.failed && (out.len != len || memcmp(out.data, data, len) != 0))
        abort();
    buf_fini(&out);
}

static void message(struct cycles *c, const uint8_t *data, size_t len, uint64_t now)
{
    struct blocked b;
    struct buf out = {0};
    struct reader r = reader_over(data, len);
    if (blocked_read(&r, RANKS, &b) < 0)
        return;
    if (b.rank < 0 || b.rank >= RANKS || b.lacks.set < 0 || b.waits.set < 0 || !b.lacks.name[0])
        abort();
    blocked_write(&b, &out);
    if (!out.failed && (out.len != len || memcmp(out.data, data, len) != 0))
        abort();
    buf_fini(&out);
    cycles_add(c, &b, now);
}

static void fill(struct blocked_in *in, uint8_t from)
{
    in->set = from % 8;
    snprintf(in->group, sizeof(in->group), "%s", in->set ? "a set" : "");
    snprintf(in->name, sizeof(in->name), "t%d", from / 8);
}

static void blocked(struct cycles *c, const uint8_t *data, uint64_t now)
{
    struct blocked b = {.rank = data[0], .since_ns = (uint64_t)data[1] * 16};
    fill(&b.lacks, data[2]);
    fill(&b.waits, data[3]);
    cycles_add(c, &b, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cycles *c = cycles_create(PERIOD);
    uint64_t now = 1;
    while (c && size >= 5) {
        uint8_t what = data[0] % 4, len = data[1];
        data++, size--;
        if (what == 0) {
            size_t n = len < size - 1 ? len : size - 1;
            message(c, data + 1, n, now);
            question(data + 1, n);
            data += 1 + n, size -= 1 + n;
            continue;
        }
        if (what == 1) {
            blocked(c, data, now);
            data += 4, size -= 4;
            continue;
        }
        now += what == 2 ? len : 8U * len;
        data++, size--;
        if (cycles_tick(c, now, on_say, NULL) < now)
            abort();
    }
    cycles_destroy(c);
    return 0;
}
