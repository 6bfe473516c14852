/* SPDX-License-Identifier: Apache-2.0
 *
 * settings: the environment variables that hvd_init() reads. Strings point into the environment.
 */
#ifndef HVD_ENGINE_SETTINGS_H
#define HVD_ENGINE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend/choice.h"
#include "core/base/err.h"

struct settings {
    uint64_t fusion_bytes;       /* HVD_FUSION_THRESHOLD, 32M */
    uint64_t cycle_ns;           /* HVD_CYCLE_TIME, 1 (milliseconds) */
    uint32_t cache_capacity;     /* HVD_CACHE_CAPACITY, 8192 */
    uint32_t freeze_after;       /* HVD_FREEZE_AFTER, 3; 0: never */
    uint64_t stall_ns;           /* HVD_STALL_CHECK_TIME_SECONDS, 60; HVD_STALL_CHECK_DISABLE: 0 */
    uint64_t stall_shutdown_ns;  /* HVD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
    uint64_t start_timeout_ms;   /* HVD_START_TIMEOUT, 30 (seconds) */
    bool hierarchical_adasum;    /* HVD_HIERARCHICAL_ADASUM, 0 */
    bool join_all;               /* HVD_JOIN_ALL, 1 */
    struct backend_wish backend; /* HVD_BACKEND, auto */
    uint64_t nccl_message_bytes; /* HVD_NCCL_MESSAGE_THRESHOLD, 0: never */
    const char *timeline;        /* HVD_TIMELINE: path, NULL: none ("DYNAMIC" is none, too) */
    bool timeline_mark_cycles;   /* HVD_TIMELINE_MARK_CYCLES */
};

/* Also sets the log level from HVD_LOG_LEVEL. -EINVAL: a value is malformed or out of range; err
 * names the variable. */
int settings_read(struct settings *ret, struct err *err);

#endif
