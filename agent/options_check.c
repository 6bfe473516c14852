/* SPDX-License-Identifier: Apache-2.0
 *
 * options_check: checks numbers and levels, and what depends on several options, the job file or
 * the environment. See options_private.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/options_private.h"
#include "core/base/known.h"
#include "core/base/log.h"
#include "core/member/protocol.h"

#define START_TIMEOUT_S     30
#define START_TIMEOUT_MAX_S 86400
#define ELASTIC_TIMEOUT_S   600
#define ELASTIC_MAX_RANKS   1024 /* with a discovery script and without --max-np */

int options_int(const char *value, int min, int max, int *ret, struct err *err)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || end == value || *end || n < min || n > max)
        return err_set(err, EINVAL, "\"%s\": want an integer from %d to %d", value, min, max);
    *ret = (int)n;
    return 0;
}

int options_number(const char *value, double min, double max, double *ret, struct err *err)
{
    char *end;
    double n = strtod(value, &end);
    if (end == value || *end || !(n >= min && n <= max))
        return err_set(err, EINVAL, "\"%.40s\": want a number from %g to %.0f", value, min, max);
    *ret = n;
    return 0;
}

int options_level(const char *value, struct err *err)
{
    enum log_level level;
    if (strcasecmp(value, "fatal") == 0 || log_level_parse(value, &level) == 0)
        return 0;
    return err_set(err, EINVAL, "\"%.40s\": want error, warn, info, debug or trace", value);
}

/* The value of a setting as the ranks will have it, also under HOROVOD_; NULL: none. *ret_name: the
 * variable that sets it. */
static const char *find_setting(const struct job *job, const char *name, char *ret_name,
                                size_t size)
{
    static const char *const prefixes[] = {"HVD_", "HOROVOD_"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(ret_name, size, "%s%s", prefixes[i], name);
        const char *value = job_getenv(job, ret_name);
        if (value && *value)
            return value;
    }
    return NULL;
}

int options_check_settings(const struct job *job, struct err *err)
{
    char name[64];
    const char *value = find_setting(job, "LOG_LEVEL", name, sizeof(name));
    int rc = value ? options_level(value, err) : 0;
    if (rc == 0) {
        value = find_setting(job, "SIMD", name, sizeof(name));
        if (value && !known_simd(value))
            rc = err_set(err, EINVAL, "\"%.40s\": want " KNOWN_SIMD, value);
    }
    return rc < 0 ? err_prefix(err, "%s", name) : 0;
}

extern char **environ;

void options_warn_of_names(const struct job *job)
{
    char text[256];
    char **const lists[] = {environ, job->env};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (char **e = lists[i]; e && *e; e++)
            if (known_misspelt(*e, text, sizeof(text)))
                fprintf(stderr, "hvdrun: %s\n", text);
}

int options_doctor(struct job *job, struct err *err)
{
    const char *value = job_getenv(job, "HVD_DOCTOR");
    if (job->doctor_said || !value || !*value || doctor_policy_parse(value, &job->doctor) == 0)
        return 0;
    return err_set(err, EINVAL, "HVD_DOCTOR: \"%.40s\": want fail, warn or off", value);
}

int options_start_timeout(struct job *job, struct err *err)
{
    char name[64];
    double seconds = START_TIMEOUT_S;
    const char *value = find_setting(job, "START_TIMEOUT", name, sizeof(name));
    if (job->start_timeout)
        return 0;
    int rc = value ? options_number(value, 0.1, START_TIMEOUT_MAX_S, &seconds, err) : 0;
    if (rc < 0)
        return err_prefix(err, "%s", name);
    job->start_timeout = (int)ceil(seconds);
    return 0;
}

int options_elastic_timeout(struct job *job, struct err *err)
{
    char name[64];
    double seconds = ELASTIC_TIMEOUT_S;
    const char *value = find_setting(job, "ELASTIC_TIMEOUT", name, sizeof(name));
    if (job->elastic_timeout)
        return 0;
    int rc = value ? options_number(value, 0.1, OPTIONS_SECONDS_MAX, &seconds, err) : 0;
    if (rc < 0)
        return err_prefix(err, "%s", name);
    job->elastic_timeout = (int)ceil(seconds);
    return 0;
}

/* Fills those of np, min_np and max_np that were not given. said: np was given. */
static void fill_sizes(struct job *job, bool said)
{
    int slots = 0;
    for (int i = 0; i < job->hosts.n; i++)
        slots += job->hosts.list[i].slots;
    if (!job->np)
        job->np = slots ? slots : job->min_np ? job->min_np : 1;
    if (!said && job->max_np && job->np > job->max_np)
        job->np = job->max_np;
    if (!job->min_np)
        job->min_np = job->np;
    if (job->discovery_script && job->np > slots && slots >= job->min_np)
        job->np = slots; /* more ranks start when more hosts appear */
    if (!job->max_np && job->discovery_script)
        job->max_np = job->np > ELASTIC_MAX_RANKS ? job->np : ELASTIC_MAX_RANKS;
    else if (!job->max_np)
        job->max_np = job->np > slots ? job->np : slots;
}

int options_check_sizes(const struct job *job, struct err *err)
{
    if (job->min_np && job->max_np && job->min_np > job->max_np)
        return err_set(err, EINVAL, "--min-np %d is more than --max-np %d", job->min_np,
                       job->max_np);
    if (job->np && job->np < job->min_np)
        return err_set(err, EINVAL, "-np %d is less than --min-np %d", job->np, job->min_np);
    if (job->max_np && job->np > job->max_np)
        return err_set(err, EINVAL, "-np %d is more than --max-np %d", job->np, job->max_np);
    if (job->keep_places && !job->min_np && !job->max_np && !job->discovery_script)
        return err_set(err, EINVAL,
                       "--keep-places: a job of a fixed size never gets a new rank for a lost one; "
                       "give --min-np or --max-np, too");
    return 0;
}

int options_elastic(struct job *job, struct err *err)
{
    job->elastic = job->min_np || job->max_np || job->discovery_script;
    if (!job->elastic)
        return 0;
    fill_sizes(job, job->np > 0);
    if (job->np < job->min_np)
        return err_set(err, EINVAL, "the number of slots %d is less than --min-np %d", job->np,
                       job->min_np);
    return options_elastic_timeout(job, err);
}
