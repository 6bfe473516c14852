/* SPDX-License-Identifier: Apache-2.0
 *
 * remains: see remains.h.
 */
#include "core/engine/remains.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/engine.h"
#include "core/transport/mesh.h"

void remains_report(struct circle *c)
{
    const struct engine *e = c->engine;
    struct remains *f = &c->remains;
    struct coll_standing st = {0};
    if (f->coll)
        coll_standing(f->coll, &st);
    f->report = (struct report){.has_state = e->world != NULL,
                                .fresh = !e->entered,
                                .done = c->done,
                                .started = st.started,
                                .whole = st.whole,
                                .pieces = st.pieces,
                                .gpu_done = c->batches.gpu.finished,
                                .gpu_whole = c->batches.gpu.whole.own};
    for (uint32_t i = 0; i < st.pieces && i < REPORT_PIECES_MAX; i++)
        f->report.final[i] = st.final[i];
}

void remains_keep(struct circle *c)
{
    struct remains *f = &c->remains;
    circle_keep_counters(c);
    circle_dissolve(c);
    ids_fini(&c->ids);
    mesh_retire(c->mesh);
    if (!f->active && c->batches.running) {
        f->mesh = c->mesh;
        f->coll = c->coll;
    } else {
        coll_destroy(c->coll);
    }
    c->coll = NULL;
    if (!f->active)
        remains_report(c);
    f->active = true;
}

int remains_decide(struct circle *c, const struct report *reports, int n, uint64_t departed_done,
                   int me, struct err *err)
{
    struct remains *f = &c->remains;
    struct decision *d = &f->decision;
    int rc = decision_make(reports, n, departed_done, me, d, err);
    if (rc == 0 && d->pieces > 0 && f->report.done == d->done && f->report.pieces == d->pieces)
        memcpy(f->report.final, d->final, sizeof(d->final));
    if (rc == 0 && f->report.has_state)
        f->report.gpu_whole = d->gpu_done;
    return rc;
}

void remains_take_mesh(struct circle *c, struct mesh *mesh)
{
    if (c->mesh != c->remains.mesh)
        mesh_destroy(c->mesh);
    c->mesh = mesh;
    c->rank = mesh->rank;
    c->size = mesh->size;
}

void remains_drop_old(struct circle *c)
{
    struct remains *f = &c->remains;
    coll_destroy(f->coll);
    if (f->mesh != c->mesh)
        mesh_destroy(f->mesh);
    f->coll = NULL;
    f->mesh = NULL;
}

void remains_fini(struct circle *c)
{
    struct remains *f = &c->remains;
    remains_drop_old(c);
    for (size_t i = 0; i < f->nsaved; i++)
        free(f->saved[i].copy);
    f->nsaved = 0;
    coll_rest_fini(&f->rest);
    free(f->saved);
    f->saved = NULL;
    f->saved_cap = 0;
    f->active = false;
}
