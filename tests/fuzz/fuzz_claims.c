/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_claims: what other ranks claim about sets (engine/set_claims.h): several claims one after
 * the other, taken by a rank that forms two sets and removes a third one.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SETS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) struct engine e;
    static struct set sets[SETS];
    struct set *table[SETS];
    struct err err;
    struct buf in = {0}, out = {0};
    e.sets = (struct sets){.table = table, .n = SETS};
    for (int i = 0; i < SETS; i++) {
        sets[i].number = SETS_FORMED + i + 1;
        sets[i].made = sets[i].removed = false;
        sets[i].circle.state = i == 2 ? CIRCLE_WORKS : CIRCLE_MAKING;
        sets[i].circle.ending = i == 2;
        table[i] = &sets[i];
        if (i < 2 && set_claims_begin(&e, &sets[i], &err) < 0)
            abort();
    }
    buf_put(&in, data, size);
    for (size_t before = in.len + 1; in.len > 0 && in.len < before;) {
        before = in.len;
        if (set_claims_take(&e, &in, &err) < 0)
            break;
    }
    /* This rank's own claims can be read to their end, and tell it nothing new. */
    const bool known[SETS] = {sets[0].made, sets[1].made, sets[2].removed};
    uint32_t serial = e.sets.claims.serial;
    set_claims_put(&e, &out);
    if (set_claims_take(&e, &out, &err) < 0 || out.len > 0 || e.sets.claims.serial != serial)
        abort();
    for (int i = 0; i < SETS; i++)
        if ((i < 2 ? sets[i].made : sets[i].removed) != known[i])
            abort();
    buf_fini(&in);
    buf_fini(&out);
    return 0;
}
