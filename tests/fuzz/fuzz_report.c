/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_report: reports of other ranks about what was in flight (engine/decision.h): several reports
 * one after the other, and the decision that follows from them.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/decision.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RANKS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct report reports[RANKS], again;
    static struct decision decisions[RANKS];
    struct err err;
    struct buf in = {0}, out = {0};
    int n = 0;
    uint64_t departed_done = size > 0 ? data[0] % 4 : 0;
    buf_put(&in, data, size);
    while (n < RANKS && in.len > 0 && report_take(&in, &reports[n], &err) == 0)
        n++;
    for (int i = 0; i < n; i++) {
        buf_reset(&out);
        report_put(&reports[i], &out);
        if (report_take(&out, &again, &err) < 0 || out.len > 0 ||
            again.pieces != reports[i].pieces || again.gpu_done != reports[i].gpu_done ||
            again.gpu_whole != reports[i].gpu_whole)
            abort();
    }
    /* All ranks must decide the same: the same count, the same pieces, or no decision. */
    int good = 0;
    for (int i = 0; i < n; i++)
        good += decision_make(reports, n, departed_done, i, &decisions[i], &err) == 0;
    if (good != 0 && good != n)
        abort();
    for (int i = 1; i < good; i++)
        if (decisions[i].done != decisions[0].done ||
            decisions[i].gpu_done != decisions[0].gpu_done ||
            memcmp(decisions[i].final, decisions[0].final, sizeof(decisions[0].final)) != 0)
            abort();
    /* No batch is finished that a rank does not have, or run again that a rank has finished. */
    for (int i = 0; i < good; i++)
        if (reports[i].has_state && (decisions[0].gpu_done < reports[i].gpu_done ||
                                     decisions[0].gpu_done > reports[i].gpu_whole))
            abort();
    buf_fini(&in);
    buf_fini(&out);
    return 0;
}
