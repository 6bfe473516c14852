/* SPDX-License-Identifier: Apache-2.0
 *
 * meet: see meet.h.
 */
#include "core/engine/meet.h"

#include <string.h>

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/engine/engine.h"
#include "core/engine/turn_private.h"

int meet_run(struct engine *e, struct meet *m, struct err *err)
{
    hvd_handle handle;
    if (m->mine.failed)
        return err_set(err, ENOMEM, "no memory");
    int rc = queue_submit_meet(e->queue, m, &handle, err);
    if (rc == -EEXIST)
        return err_set(err, EBUSY, "another thread of this rank waits in %s", m->what);
    if (rc < 0)
        return rc;
    struct slot *slot = queue_find(e->queue, handle);
    drive_submitted(e, 0);
    return drive_collect(e, slot, handle, err);
}

int meet_enter(struct circle *world, const struct rendezvous_point *point, const struct buf *mine,
               uint64_t limit, struct meeting *self, struct err *err)
{
    if (mine->failed)
        return err_set(err, ENOMEM, "no memory");
    return rendezvous_enter(world->rendezvous, point, mine->data, mine->len, limit, clock_ns(),
                            self, err);
}

/* A failed engine may have ended the slot's operation before. */
static void end_slot(struct circle *c, struct meeting *self, const struct rendezvous_end *end)
{
    struct slot *slot = list_entry(self, struct slot, meeting);
    if (!slot->meet)
        return;
    if (end->err.code) {
        turn_finish_with(c, slot, &end->err);
        return;
    }
    slot->meet->take(slot->meet->ctx, end);
    queue_finish(c->engine->queue, slot, NULL);
    drive_wake_waiters(c->engine);
}

void meet_submit(struct circle *c, struct slot *slot, uint64_t now)
{
    struct meet *m = slot->meet;
    struct err err = {0};
    slot->state = SLOT_NEGOTIATING;
    slot->meeting.end = end_slot;
    if (m->epoch != atomic_load(&c->engine->epoch)) {
        err_set(&err, EAGAIN, "a rank was lost meanwhile");
        turn_finish_with(c, slot, &err);
        return;
    }
    int rc = rendezvous_enter(c->rendezvous, &m->point, m->mine.data, m->mine.len, m->limit, now,
                              &slot->meeting, &err);
    if (rc < 0 && slot->meet)
        turn_finish_with(c, slot, &err);
}

void meet_end(void *ctx, void *caller, const struct rendezvous_end *end)
{
    struct meeting *m = caller;
    struct circle *c = ctx;
    if (end->err.code == 0)
        c->engine->sets.claims.serial = end->serial;
    m->end(ctx, m, end);
}
