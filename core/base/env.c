/* SPDX-License-Identifier: Apache-2.0
 *
 * env: see env.h.
 */
#include "core/base/env.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefixes[] = {"HVD_", "HOROVOD_"};

/* Finds the variable that is set and stores its name in var. Returns its value or NULL. */
static const char *lookup(const char *name, char *var, size_t var_size)
{
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        snprintf(var, var_size, "%s%s", prefixes[i], name);
        const char *value = getenv(var);
        if (value && *value)
            return value;
    }
    return NULL;
}

const char *env_get(const char *name)
{
    char var[96];
    return lookup(name, var, sizeof(var));
}

int env_int(const char *name, int64_t def, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
    char var[96];
    const char *value = lookup(name, var, sizeof(var));
    if (!value) {
        *ret = def;
        return 0;
    }
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno || *end || end == value || v < min || v > max)
        return err_set(err, EINVAL, "%s=%s: want an integer from %" PRId64 " to %" PRId64, var,
                       value, min, max);
    *ret = v;
    return 0;
}

int env_size(const char *name, uint64_t def, uint64_t *ret, struct err *err)
{
    char var[96];
    const char *value = lookup(name, var, sizeof(var));
    if (!value) {
        *ret = def;
        return 0;
    }
    char *end;
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    int shift = 0;
    bool digits = isdigit((unsigned char)value[0]) && end != value && !errno;
    const char *units = "KMG";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (toupper((unsigned char)*end) == 'B')
        end++;
    if (!digits || *end || v > (UINT64_MAX >> shift))
        return err_set(err, EINVAL, "%s=%s: want bytes, such as 67108864, 64M or 1G", var, value);
    *ret = (uint64_t)v << shift;
    return 0;
}

int env_bool(const char *name, bool def, bool *ret, struct err *err)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    char var[96];
    const char *value = lookup(name, var, sizeof(var));
    if (!value) {
        *ret = def;
        return 0;
    }
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *ret = strcasecmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return err_set(err, EINVAL, "%s=%s: want 1 or 0", var, value);
}

int env_double(const char *name, double def, double min, double max, double *ret, struct err *err)
{
    char var[96];
    const char *value = lookup(name, var, sizeof(var));
    if (!value) {
        *ret = def;
        return 0;
    }
    char *end;
    double v = strtod(value, &end);
    if (*end || end == value || !isfinite(v) || v < min || v > max)
        return err_set(err, EINVAL, "%s=%s: want a number from %g to %g", var, value, min, max);
    *ret = v;
    return 0;
}
