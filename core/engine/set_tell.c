/* SPDX-License-Identifier: Apache-2.0
 *
 * set_tell: what a rank tells its agent about its sets (frame SETS of base/ctl.h), for hvdrun
 * status, the operator's web page and metrics.
 */
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/engine/engine.h"
#include "core/engine/sets.h"

static void put_broken(const struct set *set, struct buf *body)
{
    char text[CTL_BROKEN_TEXT_MAX];
    int lost = set->whole - set->boot.size;
    if (lost > 0)
        snprintf(text, sizeof(text), "%s has lost %d of its %d ranks", set->text, lost, set->whole);
    else
        snprintf(text, sizeof(text), "%s is whole, but another set of its unit has lost a rank",
                 set->text);
    buf_put_u32(body, (uint32_t)set->number);
    buf_put_u64(body, (uint64_t)clock_unix_ms(set->broken_at, clock_ns()));
    buf_put_str(body, text);
}

static void put_use(const struct gpu_use *use, struct buf *body)
{
    buf_put_u32(body, (uint32_t)use->communicators);
    if (use->communicators == 0)
        return;
    buf_put_u64(body, use->left);
    buf_put_u64(body, use->total);
}

void sets_tell_agent(struct engine *e)
{
    struct ctl *agent = mesh_agent(e->circle.mesh);
    struct buf body = {0};
    uint32_t in = 0, broken = 0;
    for (size_t i = 0; i < e->sets.n; i++) {
        in += e->sets.table[i]->view.rank >= 0;
        broken += e->sets.table[i]->broken;
    }
    buf_put_u32(&body, in);
    buf_put_u32(&body, broken);
    for (size_t i = 0, listed = 0; i < e->sets.n && listed < CTL_BROKEN_MAX; i++) {
        if (!e->sets.table[i]->broken)
            continue;
        put_broken(e->sets.table[i], &body);
        listed++;
    }
    e->sets.told = gpu_home_use(&e->backends.gpu);
    put_use(&e->sets.told, &body);
    /* A failed send is ignored here: the mesh notices a lost agent. */
    if (agent && !body.failed)
        ctl_send(agent, CTL_SETS, &body, NULL, 0);
    buf_fini(&body);
}

void sets_tell_of_gpu(struct engine *e)
{
    const struct gpu_use *told = &e->sets.told;
    if (e->sets.n == 0 || e->failed) /* after a failed repair there is no mesh */
        return;
    struct gpu_use now = gpu_home_use(&e->backends.gpu);
    if (now.communicators != told->communicators || now.left != told->left ||
        now.total != told->total)
        sets_tell_agent(e);
}
