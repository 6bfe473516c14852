/* SPDX-License-Identifier: Apache-2.0
 *
 * trace: writes the JSON of a Chrome trace, event by event, into a buffer. Pure; does no file I/O.
 *
 * Each tensor is a process of the trace: "NEGOTIATE_<KIND>" lasts from submission until every rank
 * has submitted the tensor, then "<KIND>" with "QUEUE" and the algorithm inside. A tensor of a set
 * is a process of its own for each set: its name ends with "(set 1)", its label has the set's
 * ranks, and the arguments of its operations have the set's number.
 */
#ifndef HVD_ENGINE_TRACE_H
#define HVD_ENGINE_TRACE_H

#include "core/base/buf.h"
#include "core/engine/timeline.h"

struct trace {
    int rank;
    uint64_t start_ns; /* clock time of ts 0 */
    bool any;          /* an event was written: the next begins with a comma */
    uint32_t count;    /* tensors with a pid */
    struct trace_process {
        uint64_t hash;
        char *name;
    } * processes;   /* indexed by pid - 1 */
    uint32_t *table; /* open addressing: pid, 0 free */
    uint32_t table_size;
};

int trace_init(struct trace *t, int rank, uint64_t start_ns, uint64_t start_wall_us,
               struct buf *out);
void trace_fini(struct trace *t);

/* These append events. out.failed is set when memory is exhausted. */
void trace_op(struct trace *t, const struct timeline_op *op, struct buf *out);
void trace_cycle(struct trace *t, uint64_t now, struct buf *out);
void trace_dropped(struct trace *t, uint64_t count, uint64_t now, struct buf *out);

#endif
