/* SPDX-License-Identifier: Apache-2.0
 *
 * settings: see settings.h.
 */
#include "core/engine/settings.h"

#include <string.h>

#include "core/backend/backends.h"
#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/known.h"
#include "core/base/log.h"

#define YEAR_S (365.0 * 86400)

static int read_seconds(const char *name, double def, double min, uint64_t unit, uint64_t *ret,
                        struct err *err)
{
    double value;
    int rc = env_double(name, def, min, YEAR_S, &value, err);
    if (rc == 0)
        *ret = (uint64_t)(value * (double)unit);
    return rc;
}

static int read_u32(const char *name, uint32_t def, int64_t max, uint32_t *ret, struct err *err)
{
    int64_t value;
    int rc = env_int(name, def, 0, max, &value, err);
    if (rc == 0)
        *ret = (uint32_t)value;
    return rc;
}

static int read_log_level(struct err *err)
{
    const char *value = env_get("LOG_LEVEL");
    if (!value)
        return 0;
    enum log_level level = LOG_ERROR; /* "fatal", as Horovod's scripts use it, means error */
    if (strcasecmp(value, "fatal") != 0 && log_level_parse(value, &level) < 0)
        return err_set(err, EINVAL, "HVD_LOG_LEVEL=%s: not one of error warn info debug trace",
                       value);
    log_set_level(level);
    return 0;
}

/* coll/reduce has read HVD_SIMD already, when the library was loaded. A bad value is reported here,
 * where a call can fail. */
static int check_simd(struct err *err)
{
    const char *value = env_get("SIMD");
    if (!value || known_simd(value))
        return 0;
    return err_set(err, EINVAL, "HVD_SIMD=%.40s: want " KNOWN_SIMD, value);
}

static int read_stall(struct settings *s, struct err *err)
{
    bool disable;
    int rc = env_bool("STALL_CHECK_DISABLE", false, &disable, err);
    if (rc == 0)
        rc = read_seconds("STALL_CHECK_TIME_SECONDS", 60, 0, CLOCK_S, &s->stall_ns, err);
    if (rc == 0)
        rc = read_seconds("STALL_SHUTDOWN_TIME_SECONDS", 0, 0, CLOCK_S, &s->stall_shutdown_ns, err);
    if (rc == 0 && disable)
        s->stall_ns = 0;
    return rc;
}

int settings_read(struct settings *ret, struct err *err)
{
    struct settings s = {0};
    int rc = read_log_level(err);
    if (rc == 0)
        rc = check_simd(err);
    if (rc == 0)
        rc = env_size("FUSION_THRESHOLD", 32u << 20, &s.fusion_bytes, err);
    if (rc == 0)
        rc = env_size("NCCL_MESSAGE_THRESHOLD", 0, &s.nccl_message_bytes, err);
    if (rc == 0)
        rc = read_seconds("CYCLE_TIME", 1, 0, CLOCK_MS, &s.cycle_ns, err);
    if (rc == 0)
        rc = read_u32("CACHE_CAPACITY", 8192, 1 << 20, &s.cache_capacity, err);
    if (rc == 0)
        rc = read_u32("FREEZE_AFTER", 3, 1 << 20, &s.freeze_after, err);
    if (rc == 0)
        rc = read_stall(&s, err);
    if (rc == 0)
        rc = read_seconds("START_TIMEOUT", 30, 0.1, 1000, &s.start_timeout_ms, err);
    if (rc == 0)
        rc = env_bool("HIERARCHICAL_ADASUM", false, &s.hierarchical_adasum, err);
    if (rc == 0)
        rc = env_bool("JOIN_ALL", true, &s.join_all, err);
    if (rc == 0)
        rc = backend_wish_parse(env_get("BACKEND"), &s.backend, err);
    if (rc == 0)
        rc = env_bool("TIMELINE_MARK_CYCLES", false, &s.timeline_mark_cycles, err);
    if (rc < 0)
        return rc;
    s.timeline = env_get("TIMELINE");
    if (s.timeline && strcmp(s.timeline, "DYNAMIC") == 0)
        s.timeline = NULL;
    *ret = s;
    return 0;
}
