/* SPDX-License-Identifier: Apache-2.0
 *
 * retired: see retired.h.
 */
#include "core/engine/retired.h"

#include <stdlib.h>

#include "core/backend/device.h"
#include "core/engine/engine.h"

static void destroy(struct device *device)
{
    device_end(device);
    device_destroy(device);
}

void retired_add(struct engine *e, struct device *device)
{
    struct retired *r = &e->sets.retired;
    if (!device)
        return;
    struct device **list = realloc(r->list, (r->n + 1) * sizeof(struct device *));
    if (!list) {
        destroy(device);
        return;
    }
    r->list = list;
    r->list[r->n++] = device;
}

void retired_bury(struct engine *e)
{
    if (e->sets.retired.n == 0 || gpu_lane_in_use(&e->circle))
        return;
    for (size_t i = 0; i < e->sets.n; i++) /* also those whose epoch has ended */
        if (gpu_lane_in_use(&e->sets.table[i]->circle))
            return;
    retired_fini(&e->sets.retired);
}

void retired_fini(struct retired *r)
{
    while (r->n > 0)
        destroy(r->list[--r->n]);
    free(r->list);
    r->list = NULL;
}
