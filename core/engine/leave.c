/* SPDX-License-Identifier: Apache-2.0
 *
 * leave: see leave.h.
 */
#include "core/engine/leave.h"

#include <poll.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/launch_order.h"
#include "core/negotiate/order.h"
#include "core/negotiate/ranklist.h"

#define LEAVE_MS 5000  /* how long hvd_shutdown() waits for the others, unless it serves */
#define SAY_MS   10000 /* after which it says for whom it waits longer */

/* Forwards messages of a circle that this rank leaves. Returns whether the mesh works. */
static bool tend(struct engine *e, struct circle *c)
{
    struct err err = {0};
    if (mesh_progress(c->mesh, NULL, &err) < 0)
        return false;
    control_progress(c);
    if (!e->failed)
        negotiate_tick(c->neg, clock_ns());
    if (!e->failed && c->order)
        launch_order_tick(c);
    if (!e->failed && c->order && order_failed(c->order) < 0 && !e->trouble.code)
        err_set(&e->trouble, -order_failed(c->order), "the order of launches has failed");
    if (!e->failed && negotiate_failed(c->neg) < 0 && !e->trouble.code)
        err_set(&e->trouble, -negotiate_failed(c->neg), "negotiation has failed");
    return true;
}

static bool has_left(struct circle *c)
{
    return control_flush(c) == 0 && mesh_all_left(c->mesh);
}

/* Returns true when there is nothing left to wait for. */
static bool tend_all(struct engine *e)
{
    struct circle *c;
    bool left = true;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        bool works = tend(e, c);
        if (!works && c == &e->circle)
            return true;
        left = left && (!works || has_left(c));
    }
    return left;
}

/* Names the ranks that have not shut down yet, for which this rank serves the order of launches. */
static void say_serves(struct engine *e)
{
    const struct control *t = &e->circle.control;
    char text[160];
    int *ranks = calloc((size_t)e->circle.size, sizeof(*ranks)), n = 0;
    for (int r = 0; ranks && r < e->circle.size; r++)
        if (!t->departed[r])
            ranks[n++] = r;
    if (n > 0) {
        ranklist_text(ranks, n, text, sizeof(text));
        log_info("hvd_shutdown() waits for %s to shut down, too: their sets use NCCL, and learn "
                 "through this rank in which order to launch its operations",
                 text);
    }
    free(ranks);
}

void leave_world(struct engine *e)
{
    bool serves = launch_order_serves(&e->circle);
    uint64_t deadline = deadline_in_ms(serves ? LAUNCH_ORDER_SERVES_MS : LEAVE_MS);
    uint64_t told = deadline_in_ms(SAY_MS);
    struct circle *c;
    if (e->broken)
        return;
    for (size_t i = 0; (c = engine_circle(e, i)) != NULL; i++) {
        control_farewell(c);
        mesh_goodbye(c->mesh);
    }
    engine_send_bye(e, BYE_IN_ORDER, NULL);
    while (!e->broken && !deadline_passed(deadline) && !tend_all(e)) {
        if (e->trouble.code) {
            mesh_abort(e->circle.mesh, e->trouble.msg);
            sets_abort(e, e->trouble.msg);
            e->broken = true;
            return;
        }
        if (serves && deadline_passed(told)) {
            say_serves(e);
            told = UINT64_MAX;
        }
        circles_sleep_begin(e);
        struct pollfd p = {.fd = circles_fd(e), .events = POLLIN};
        poll(&p, 1, 5);
        circles_sleep_end(e);
    }
}
