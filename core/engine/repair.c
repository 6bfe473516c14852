/* SPDX-License-Identifier: Apache-2.0
 *
 * repair: see repair.h. The steps are named as in REPAIR.md.
 */
#include "core/engine/repair.h"

#include <stdlib.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/inject.h"
#include "core/base/log.h"
#include "core/backend/choice.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_table.h"
#include "core/engine/set_units.h"
#include "core/engine/settle.h"
#include "core/transport/card.h"
#include "core/transport/mesh.h"

#define MEET_MS      10000 /* connection setup among members that are all known to be alive */
#define ATTEMPTS_MAX 64    /* failed epochs in a row before this rank gives up */

/* ---- install and connect -------------------------------------------------------------------- */

/* A rank that never completed an epoch has no training state, even if a roster listed it. In a
 * job's first epoch no rank counts as new. */
static void mark_new(struct boot *boot, const struct report *reports)
{
    bool first = true;
    for (int r = 0; r < boot->size; r++)
        first = first && reports[r].fresh;
    for (int r = 0; r < boot->size; r++)
        boot->is_new[r] = !first && reports[r].fresh;
    for (int r = 0; r < boot->size; r++)
        boot->starts[r] = !reports[r].has_state;
}

/* A rank whose card were too long could enter no epoch. */
_Static_assert(REPORT_BYTES_MAX + SET_CLAIMS_BYTES_MAX + SET_UNITS_BYTES_MAX +
                       BACKEND_SAID_BYTES_MAX + CARD_BYTES_MAX <=
                   BOOT_CARD_MAX,
               "not every card fits");

static void put_report(const struct engine *e, struct buf *blob)
{
    report_put(&e->circle.remains.report, blob);
    set_claims_put(e, blob);
    set_units_put(e, blob);
}

static int read_cards(struct engine *e, struct report *reports, struct err *err)
{
    struct set_units units = {.places = NULL};
    int rc = 0;
    for (int r = 0; rc == 0 && r < e->boot.size; r++) {
        rc = report_take(&e->boot.cards[r], &reports[r], err);
        if (rc == 0)
            rc = set_claims_take(e, &e->boot.cards[r], err);
        if (rc == 0)
            rc = set_units_take(e, &units, &e->boot.cards[r], err);
        if (rc < 0)
            err_prefix(err, "rank %d", r);
    }
    if (rc == 0)
        rc = set_units_end(e, &units, err);
    set_units_fini(&units);
    return rc;
}

/* Reads all reports and makes the decision. */
static int take_reports(struct engine *e, struct err *err)
{
    auto_free struct report *reports = calloc((size_t)e->boot.size, sizeof(*reports));
    if (!reports)
        return err_set(err, ENOMEM, "no memory for %d reports", e->boot.size);
    int rc = read_cards(e, reports, err);
    if (rc < 0)
        return rc;
    mark_new(&e->boot, reports);
    return remains_decide(&e->circle, reports, e->boot.size, e->boot.departed_done, e->boot.rank,
                          err);
}

static void take_mesh(struct engine *e, struct mesh *mesh)
{
    remains_take_mesh(&e->circle, mesh);
    atomic_store(&e->epoch, mesh->epoch);
    atomic_store(&e->applied, e->boot.change);
}

static int make_world(struct engine *e, struct err *err)
{
    struct world *w = world_make(&e->boot, e->circle.mesh);
    if (!w)
        return err_set(err, ENOMEM, "no memory for a world of %d", e->circle.size);
    w->older = e->worlds;
    e->worlds = w;
    w->table = set_table_due(e, w); /* until the next vote */
    return e->world ? circle_map(&e->circle, err) : engine_enter_world(e, w, err);
}

/* In the first epoch other ranks may start slowly, so only the caller's deadline applies. */
static uint64_t meet_by(const struct engine *e, uint64_t deadline)
{
    return e->circle.remains.active || e->boot.why == CTL_ENTER ? deadline_in_ms(MEET_MS)
                                                                : deadline;
}

static int exchange(struct engine *e, const struct buf *card, uint64_t *deadline, struct err *err)
{
    int rc = boot_exchange(&e->boot, card, *deadline, err);
    *deadline = boot_extended(&e->boot, *deadline);
    return rc;
}

static void revoke_gpus(struct engine *e)
{
    gpu_lane_revoke(&e->circle);
    sets_revoke_gpus(e);
}

/* Tries once to send the card, to get the roster and to connect the mesh. Moves *deadline on by the
 * time in which the agent's coordinator was away. Returns 1 if this rank got provisional numbers
 * instead. */
static int connect_epoch(struct engine *e, uint64_t *deadline, struct err *err)
{
    struct mesh_listener *listener = NULL;
    struct mesh *mesh = NULL;
    struct buf blob = {0};
    if (e->boot.elastic)
        put_report(e, &blob);
    int rc = backends_say(&e->backends, e->boot.elastic, &blob, err);
    if (rc == 0)
        rc = mesh_listen(&e->boot, &listener, &blob, err);
    if (rc == 0 && e->circle.remains.active)
        inject_point("report");
    if (rc == 0)
        rc = exchange(e, &blob, deadline, err);
    if (rc == 0 && e->boot.elastic)
        rc = take_reports(e, err);
    /* Not before every survivor has reported: work that was aborted on one rank ends on the others,
     * too, with a result that is wrong (REPAIR.md). */
    if (rc == 0 && e->circle.remains.active)
        revoke_gpus(e);
    if (rc == 0)
        rc = backends_hear(&e->backends, e->boot.cards, e->boot.size, err);
    if (rc == 0 && e->circle.remains.active)
        inject_point("install");
    if (rc == 0)
        rc = mesh_create(&e->boot, TAKE(listener), meet_by(e, *deadline), &mesh, err);
    mesh_listener_destroy(listener);
    buf_fini(&blob);
    if (rc != 0 || !mesh)
        return rc;
    take_mesh(e, mesh);
    if (e->circle.remains.active)
        inject_point("connect");
    return make_world(e, err);
}

/* Returns whether the next epoch may succeed: a rank was lost meanwhile, or could not be reached,
 * and the coordinator will say which ranks are alive. */
static bool may_try_again(int rc)
{
    return rc == -EAGAIN || rc == -ECONNRESET || rc == -ETIMEDOUT;
}

int repair_first_epoch(struct engine *e, uint64_t deadline, struct err *err)
{
    int rc;
    remains_report(&e->circle);
    do
        rc = connect_epoch(e, &deadline, err);
    while (e->boot.elastic && may_try_again(rc) && !deadline_passed(deadline));
    /* A joiner continues the members' operation count. */
    if (rc == 0) {
        e->circle.done = e->circle.remains.decision.done;
        e->circle.batches.gpu.finished = e->circle.remains.decision.gpu_done;
    }
    return rc;
}

/* ---- the whole repair ----------------------------------------------------------------------- */

static int enter_epoch(struct engine *e, struct err *err)
{
    int rc = coll_create(e->circle.mesh, &e->circle.coll, err);
    if (rc < 0)
        return rc;
    coll_set_elastic(e->circle.coll);
    rc = backends_enter(&e->backends, e->circle.coll, engine_is_newcomer(e),
                        deadline_in_ms(MEET_MS), err);
    e->circle.device = e->backends.device;
    if (rc == 0)
        rc = batches_resize(&e->circle, err);
    return rc == 0 ? settle(&e->circle, err) : rc;
}

/* Tells the other ranks that this rank has given up the mesh: for them it may be complete already.
 */
static void leave_mesh(struct engine *e, const struct err *why)
{
    mesh_abort(e->circle.mesh, err_text(why));
    mesh_retire(e->circle.mesh);
}

static int next_epoch(struct engine *e, struct err *err)
{
    uint64_t deadline = UINT64_MAX;
    int rc = connect_epoch(e, &deadline, err);
    if (rc == 0)
        rc = enter_epoch(e, err);
    if (rc < 0) {
        coll_destroy(e->circle.coll);
        e->circle.coll = NULL;
        leave_mesh(e, err);
    }
    return rc;
}

static void tell_agent(struct engine *e, uint64_t ns)
{
    struct buf body = {0};
    buf_put_u32(&body, e->circle.mesh->epoch);
    buf_put_u64(&body, ns);
    if (!body.failed)
        ctl_send(&e->boot.ctl, CTL_REPAIRED, &body, NULL, 0);
    buf_fini(&body);
}

static int repair(struct engine *e, int why, const char *cause, struct err *err)
{
    uint64_t begin = clock_ns();
    bool loss = why == CTL_REVOKED;
    int rc = -EAGAIN;
    atomic_store(&e->repairing, 1);
    sets_revoke(e, cause);
    sets_unwatch_world(e);
    remains_keep(&e->circle);
    inject_point("revoke");
    for (int i = 0; i < ATTEMPTS_MAX && may_try_again(rc); i++) {
        e->boot.why = why;
        err->code = 0;
        rc = next_epoch(e, err);
        if (may_try_again(rc))
            log_info("epoch %u did not come to be: %s", e->boot.epoch, err_text(err));
        why = CTL_REVOKED;
    }
    if (rc < 0)
        return rc;
    rc = engine_negotiate_anew(e, err);
    if (rc < 0) {
        leave_mesh(e, err);
        return rc;
    }
    inject_point("resubmit");
    uint64_t ns = clock_ns() - begin;
    if (loss)
        e->repair.last_ns = ns;
    log_info("epoch %u: rank %d of %d after %.1f ms (%s)", e->circle.mesh->epoch, e->circle.rank,
             e->circle.size, (double)ns / CLOCK_MS, cause);
    tell_agent(e, ns);
    return 0;
}

int repair_next_epoch(struct engine *e, int why, const char *cause, struct err *err)
{
    e->repair.boundary = why == CTL_BOUNDARY;
    int rc = repair(e, why, cause, err);
    e->repair.boundary = false;
    /* After a failed repair callers get their tensors back. An unfinished GPU operation of any
     * epoch may still use them, so give it up first. */
    if (rc < 0) {
        engine_explain(err);
        engine_send_bye(e, BYE_THIS_RANK, err); /* the survivors wait for it */
        engine_let_others_hear(e);
        engine_revoke_gpus(e);
        device_end(e->backends.device);
    }
    remains_fini(&e->circle);
    atomic_store(&e->repairing, 0);
    return rc;
}
