/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_environment: see rank_environment.h.
 */
#include "agent/rank_environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/horovod.h"
#include "core/base/program.h"

extern char **environ;

/* Fills *ret with the NAME=value pairs of one rank; the numbers are under both prefixes. */
static int rank_variables(const struct agent_config *config, const struct welcome_body *welcome,
                          const struct assignment *assignment, int agent_fd, char ***ret)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", assignment->member % welcome->size},
        {"SIZE", welcome->size},
        {"LOCAL_RANK", assignment->local_rank},
        {"LOCAL_SIZE", welcome->elastic ? welcome->slots : welcome->nassignments},
        {"CROSS_RANK", assignment->cross_rank},
        {"CROSS_SIZE", assignment->cross_size},
        {"START_TIMEOUT", config->start_timeout},
    };
    const char *prefixes[] = {"HVD_", "HOROVOD_"};
    size_t n = 0, nnumbers = sizeof(numbers) / sizeof(numbers[0]);
    char **list = calloc(2 * nnumbers + 6, sizeof(*list));
    int rc = list ? 0 : -1;
    for (size_t p = 0; p < 2 && rc >= 0; p++)
        for (size_t i = 0; i < nnumbers && rc >= 0; i++)
            rc = asprintf(&list[n++], "%s%s=%d", prefixes[p], numbers[i].name, numbers[i].value);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HVD_AGENT_FD=%d", agent_fd);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HVD_JOB=%s", welcome->job);
    if (rc >= 0)
        rc = asprintf(&list[n++], "HOROVOD_HOSTNAME=%s", config->host);
    if (rc >= 0 && welcome->elastic)
        rc = asprintf(&list[n++], "HVD_ELASTIC=1");
    if (rc >= 0 && !getenv("PYTHONUNBUFFERED")) /* so that lines are shown when printed */
        rc = asprintf(&list[n++], "PYTHONUNBUFFERED=1");
    if (rc < 0) {
        strings_free(list);
        return -ENOMEM;
    }
    *ret = list;
    return 0;
}

static bool names_same(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

int rank_environment_make(const struct agent_config *config, const struct welcome_body *welcome,
                          const struct assignment *assignment, int agent_fd, char ***ret_own,
                          char ***ret)
{
    char **own = NULL;
    int rc = rank_variables(config, welcome, assignment, agent_fd, &own);
    if (rc < 0)
        return rc;
    size_t n = 0, nown = strings_count(own);
    char **list = calloc(strings_count(environ) + nown + 1, sizeof(*list));
    if (!list) {
        strings_free(own);
        return -ENOMEM;
    }
    for (char **e = environ; *e; e++) {
        bool mine = false;
        for (size_t i = 0; i < nown && !mine; i++)
            mine = names_same(own[i], *e);
        if (!mine)
            list[n++] = *e;
    }
    memcpy(list + n, own, nown * sizeof(*own));
    *ret_own = own;
    *ret = list;
    return 0;
}

/* Sets the configuration's variables in this process, for all ranks; execvpe() uses the PATH among
 * them. */
static int set_variables(const struct agent_config *config)
{
    for (char **e = config->env; e && *e; e++) {
        char *equals = strchr(*e, '=');
        if (!equals)
            continue;
        char *name = strndup(*e, (size_t)(equals - *e));
        int rc = name ? setenv(name, equals + 1, 1) : -1;
        free(name);
        if (rc < 0)
            return -ENOMEM;
    }
    return 0;
}

static int extend_path(void)
{
    char here[4096], path[8192];
    const char *old = getenv("PATH");
    if (program_beside(here, sizeof(here), "hvd-agent", NULL) < 0)
        return 0;
    *strrchr(here, '/') = '\0';
    int n = snprintf(path, sizeof(path), "%s:%s", old && *old ? old : "/usr/bin:/bin", here);
    return n < (int)sizeof(path) ? setenv("PATH", path, 1) : 0;
}

int rank_environment_apply(const struct agent_config *config, struct err *err)
{
    if (set_variables(config) < 0 || extend_path() < 0)
        return err_set(err, ENOMEM, "no memory for the environment of the ranks");
    return horovod_apply(err);
}
