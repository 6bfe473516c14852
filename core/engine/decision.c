/* SPDX-License-Identifier: Apache-2.0
 *
 * decision: see decision.h.
 */
#include "core/engine/decision.h"

#include <errno.h>
#include <string.h>

enum { HAS_STATE = 1, STARTED = 2, WHOLE = 4, FRESH = 8, FLAGS_ALL = 15 };

void report_put(const struct report *r, struct buf *out)
{
    buf_put_u8(out, (uint8_t)((r->has_state ? HAS_STATE : 0) | (r->started ? STARTED : 0) |
                              (r->whole ? WHOLE : 0) | (r->fresh ? FRESH : 0)));
    buf_put_u64(out, r->done);
    buf_put_u64(out, r->gpu_done);
    buf_put_u64(out, r->gpu_whole);
    buf_put_u32(out, r->pieces);
    for (uint32_t i = 0; i < r->pieces; i++)
        buf_put_u32(out, r->final[i]);
}

int report_take(struct buf *buf, struct report *ret, struct err *err)
{
    struct reader r = reader_over(buf->data, buf->len);
    uint8_t flags = reader_u8(&r);
    struct report report = {.has_state = flags & HAS_STATE,
                            .started = flags & STARTED,
                            .whole = flags & WHOLE,
                            .fresh = flags & FRESH};
    report.done = reader_u64(&r);
    report.gpu_done = reader_u64(&r);
    report.gpu_whole = reader_u64(&r);
    report.pieces = reader_u32(&r);
    if (r.failed || flags > FLAGS_ALL || report.pieces > REPORT_PIECES_MAX)
        return err_set(err, EPROTO, "invalid report");
    for (uint32_t i = 0; i < report.pieces; i++)
        report.final[i] = reader_u32(&r);
    if (r.failed)
        return err_set(err, EPROTO, "a report that is cut short");
    buf_consume(buf, r.pos);
    *ret = report;
    return 0;
}

/* For each piece, the largest number of final steps that any rank in operation `done` reports.
 * Returns true when some step is final. */
static bool merge(const struct report *reports, int n, struct decision *d)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        const struct report *r = &reports[i];
        if (!r->has_state || !r->started || r->done != d->done || r->pieces == 0)
            continue;
        d->pieces = r->pieces;
        for (uint32_t p = 0; p < r->pieces; p++) {
            d->final[p] = r->final[p] > d->final[p] ? r->final[p] : d->final[p];
            any = any || d->final[p] > 0;
        }
    }
    return any;
}

/* Verifies the invariants. A final step implies that all ranks have begun the operation, so all
 * must report the same pieces. */
static int check(const struct report *reports, int n, const struct decision *d, bool any,
                 struct err *err)
{
    for (int i = 0; i < n; i++) {
        const struct report *r = &reports[i];
        if (!r->has_state)
            continue;
        if (r->done + 1 < d->done)
            return err_set(err, EPROTO, "rank %d has finished %llu operations, other ranks %llu", i,
                           (unsigned long long)r->done, (unsigned long long)d->done);
        if (r->done < d->done && !r->whole && r->pieces == 0)
            return err_set(err, EPROTO,
                           "rank %d cannot finish operation %llu, which other ranks have finished",
                           i, (unsigned long long)r->done);
        if (any && (r->done != d->done || !r->started || r->pieces != d->pieces))
            return err_set(
                err, EPROTO,
                "parts of operation %llu are final (%u pieces), but rank %d has done %llu, "
                "%s, %u pieces",
                (unsigned long long)d->done, d->pieces, i, (unsigned long long)r->done,
                r->started ? "started the next" : "not started", r->pieces);
    }
    return 0;
}

/* True when every survivor has the whole result and only misses the barrier after it. A rank that
 * passed that barrier may have left the job since. */
static bool all_whole(const struct report *reports, int n, const struct decision *d)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (!reports[i].has_state)
            continue;
        any = true;
        if (!reports[i].whole || reports[i].done != d->done)
            return false;
    }
    return any;
}

/* Batches that some rank has finished, or that all survivors have whole. */
static int decide_gpu(const struct report *reports, int n, uint64_t *ret, struct err *err)
{
    uint64_t done = 0, whole = 0;
    bool any = false;
    for (int i = 0; i < n; i++) {
        const struct report *r = &reports[i];
        if (!r->has_state)
            continue;
        done = r->gpu_done > done ? r->gpu_done : done;
        whole = !any || r->gpu_whole < whole ? r->gpu_whole : whole;
        any = true;
    }
    if (whole < done)
        return err_set(err, EPROTO,
                       "a rank has finished %llu batches on GPUs, but another one has only %llu",
                       (unsigned long long)done, (unsigned long long)whole);
    *ret = whole;
    return 0;
}

int decision_make(const struct report *reports, int n, uint64_t departed_done, int me,
                  struct decision *ret, struct err *err)
{
    struct decision d = {.what = DECISION_NOTHING, .done = departed_done};
    for (int i = 0; i < n; i++)
        if (reports[i].has_state && reports[i].done > d.done)
            d.done = reports[i].done;
    bool any = merge(reports, n, &d);
    int rc = check(reports, n, &d, any, err);
    if (rc == 0)
        rc = decide_gpu(reports, n, &d.gpu_done, err);
    if (rc < 0)
        return rc;
    d.done += all_whole(reports, n, &d);
    const struct report *mine = &reports[me];
    if (mine->has_state && mine->done < d.done)
        d.what = DECISION_FINISH;
    else if (mine->has_state && any)
        d.what = DECISION_REST;
    *ret = d;
    return 0;
}
