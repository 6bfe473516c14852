/* SPDX-License-Identifier: Apache-2.0
 *
 * outlet: what is known about a place that output goes to, a stream or the output files, when its
 * reader or its disk is slower than the ranks print.
 *
 * Up to a bound (HVD_OUTPUT_BUFFER) bytes wait in memory and nobody is held up. Beyond that a
 * reader that still takes something holds the ranks up, as a pipe would. One that has taken nothing
 * for OUTLET_STALL_MS does not: what comes is dropped, counted, and said in its place as soon as
 * there is room again. Pure.
 */
#ifndef HVD_AGENT_OUTLET_H
#define HVD_AGENT_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/clock.h"

#define OUTLET_MAX      (64u << 20) /* the default bound */
#define OUTLET_MIN      (64u << 10)
#define OUTLET_STALL_MS 2000ULL

enum outlet_state {
    OUTLET_FREE, /* takes what comes */
    OUTLET_FULL, /* its reader is slow: ranks wait */
    OUTLET_DROP, /* its reader has stopped: what comes is dropped */
};

/* pending: bytes that wait; moved: the clock when the last of them went, or when they began to
 * wait. */
static inline enum outlet_state outlet_state(size_t pending, size_t max, uint64_t moved,
                                             uint64_t now)
{
    if (pending < max)
        return OUTLET_FREE;
    return now > moved && now - moved >= OUTLET_STALL_MS * CLOCK_MS ? OUTLET_DROP : OUTLET_FULL;
}

/* What was dropped since it was said last. */
struct outlet_loss {
    uint64_t lines, bytes;
};

/* The line that says so; its length. */
size_t outlet_say(struct outlet_loss *loss, const char *reader, char *dst, size_t size);

#endif
