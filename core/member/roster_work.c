/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_work: see roster_work.h.
 */
#include "core/member/roster_work.h"

#include <stddef.h>
#include <string.h>

#include "core/base/clock.h"

#define SAMPLE_EVERY CLOCK_S

void roster_work_repaired(struct roster_work *w, uint32_t epoch, uint64_t ns)
{
    if (epoch != w->repair_epoch)
        w->repair_last = 0;
    w->repair_epoch = epoch;
    if (ns > w->repair_last)
        w->repair_last = ns;
    if (ns > w->repair_max)
        w->repair_max = ns;
}

void roster_work_sample(struct roster_work *w, uint64_t now)
{
    if (w->samples[0].at && now - w->samples[0].at < SAMPLE_EVERY)
        return;
    memmove(&w->samples[1], &w->samples[0], (ROSTER_SAMPLES - 1) * sizeof(w->samples[0]));
    w->samples[0] = (struct roster_sample){now, w->batches, w->bytes};
}

void roster_work_rates(const struct roster_work *w, int size, uint64_t now, double *ret_batches,
                       double *ret_bytes)
{
    const struct roster_sample *oldest = NULL;
    for (int i = 0; i < ROSTER_SAMPLES; i++)
        if (w->samples[i].at)
            oldest = &w->samples[i];
    double s = oldest && now > oldest->at ? (double)(now - oldest->at) / CLOCK_S : 0;
    *ret_batches = s > 0 ? (double)(w->batches - oldest->batches) / s / size : 0;
    *ret_bytes = s > 0 ? (double)(w->bytes - oldest->bytes) / s : 0;
}
