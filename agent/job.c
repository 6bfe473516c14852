/* SPDX-License-Identifier: Apache-2.0
 *
 * job: see job.h.
 */
#include "agent/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"

void job_init(struct job *job)
{
    *job = (struct job){0};
}

void job_fini(struct job *job)
{
    hosts_fini(&job->hosts);
    strings_free(job->argv);
    strings_free(job->env);
    free(job->name);
    free(job->cwd);
    free(job->output_dir);
    free(job->metrics);
    free(job->discovery_script);
    free(job->ssh_identity);
    *job = (struct job){0};
}

int job_setenv(struct job *job, const char *name, const char *value)
{
    char *entry;
    size_t n = strings_count(job->env), len = strlen(name);
    if (asprintf(&entry, "%s=%s", name, value) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(job->env[i], entry, len + 1) == 0) {
            free(job->env[i]);
            job->env[i] = entry;
            return 0;
        }
    }
    char **grown = realloc(job->env, (n + 2) * sizeof(*grown));
    if (!grown) {
        free(entry);
        return -ENOMEM;
    }
    grown[n] = entry;
    grown[n + 1] = NULL;
    job->env = grown;
    return 0;
}

const char *job_getenv(const struct job *job, const char *name)
{
    size_t len = strlen(name);
    for (char **e = job->env; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return getenv(name);
}

char *job_absolute(const char *path)
{
    char *joined;
    if (path[0] == '/')
        return strdup(path);
    auto_free char *cwd = getcwd(NULL, 0);
    return cwd && asprintf(&joined, "%s/%s", cwd, path) >= 0 ? joined : NULL;
}

static bool is_forwarded(const char *variable)
{
    const char *const prefixes[] = {"HVD_", "HOROVOD_", "PYTHON"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

extern char **environ;

char **job_remote_environment(const struct job *job)
{
    size_t n = 0, nset = strings_count(job->env);
    char **list = calloc(strings_count(environ) + nset + 1, sizeof(*list));
    for (char **e = environ; list && *e; e++)
        if (is_forwarded(*e))
            list[n++] = *e;
    if (list && nset)
        memcpy(list + n, job->env, nset * sizeof(*list));
    return list;
}
