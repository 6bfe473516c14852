/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: monotonic nanoseconds and deadlines. Any thread, async-signal-safe.
 */
#ifndef HVD_BASE_CLOCK_H
#define HVD_BASE_CLOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define CLOCK_MS 1000000ULL
#define CLOCK_S  1000000000ULL

/* CLOCK_MONOTONIC in nanoseconds; the same clock in every process of one host. */
static inline uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_S + (uint64_t)ts.tv_nsec;
}

/* Wall clock in microseconds since 1970, for logs and traces only. */
static inline uint64_t clock_wall_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000ULL + (uint64_t)ts.tv_nsec / 1000;
}

/* Converts at, an earlier clock_ns() value, to milliseconds since 1970; now is clock_ns() of this
 * moment. Returns 0 when at is 0. */
static inline int64_t clock_unix_ms(uint64_t at, uint64_t now)
{
    struct timespec ts;
    if (at == 0 || clock_gettime(CLOCK_REALTIME, &ts) < 0)
        return 0;
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 - (int64_t)((now - at) / CLOCK_MS);
}

/* A deadline is a clock_ns() value; UINT64_MAX means never. */
static inline uint64_t deadline_in_ms(uint64_t ms)
{
    return clock_ns() + ms * CLOCK_MS;
}

static inline bool deadline_passed(uint64_t deadline)
{
    return deadline != UINT64_MAX && clock_ns() >= deadline;
}

/* Milliseconds until the deadline, rounded up, for poll(2): 0 when it has passed, -1 for never. */
static inline int deadline_poll_ms(uint64_t deadline)
{
    if (deadline == UINT64_MAX)
        return -1;
    uint64_t now = clock_ns();
    if (now >= deadline)
        return 0;
    uint64_t ms = (deadline - now + CLOCK_MS - 1) / CLOCK_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

#endif
