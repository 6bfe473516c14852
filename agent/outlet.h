/* SPDX-License-Identifier: Apache-2.0
 *
 * outlet: the state of a place that output goes to, a stream or the output files, whose reader or
 * disk may be slower than the ranks print.
 *
 * Up to a bound (HVD_OUTPUT_BUFFER) bytes wait in memory and ranks do not wait. Beyond the bound, a
 * reader that is only slow makes the ranks wait, as a pipe would. For a reader that has taken
 * nothing for OUTLET_STALL_MS ranks do not wait: further output is dropped and counted, and a line
 * about it is written in its place once there is room. Pure.
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
    OUTLET_FREE, /* takes output */
    OUTLET_FULL, /* the reader is slow: ranks wait */
    OUTLET_DROP, /* the reader has stopped: output is dropped */
};

/* pending: bytes that wait. moved: clock_ns() when bytes were last taken, or when they began to
 * wait. */
static inline enum outlet_state outlet_state(size_t pending, size_t max, uint64_t moved,
                                             uint64_t now)
{
    if (pending < max)
        return OUTLET_FREE;
    return now > moved && now - moved >= OUTLET_STALL_MS * CLOCK_MS ? OUTLET_DROP : OUTLET_FULL;
}

/* Output that was dropped since the last outlet_say(). */
struct outlet_loss {
    uint64_t lines, bytes;
};

/* Writes the line about the loss and resets it. Returns the length. */
size_t outlet_say(struct outlet_loss *loss, const char *reader, char *dst, size_t size);

#endif
