/* SPDX-License-Identifier: Apache-2.0
 *
 * sites: folders with Python packages; see copies.h. No interpreter is started.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diagnostics/prober/copies.h"

static void add(struct sites *s, const char *dir)
{
    char real[PATH_MAX];
    struct stat st;
    if (s->n >= SITES_MAX || !realpath(dir, real) || stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->dir[i], real) == 0)
            return;
    }
    s->dir[s->n] = strdup(real);
    s->n += s->dir[s->n] != NULL;
}

/* Adds site-packages and dist-packages of an installation. */
static void add_prefix(struct sites *s, const char *prefix)
{
    static const char *const ends[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                                       "local/lib/python3*/dist-packages",
                                       "lib64/python3*/site-packages"};
    char pattern[PATH_MAX];
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        glob_t found;
        snprintf(pattern, sizeof(pattern), "%s/%s", prefix, ends[i]);
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc; k++)
                add(s, found.gl_pathv[k]);
        }
        globfree(&found);
    }
}

/* Calls f for each folder of a colon-separated list. */
static void each(struct sites *s, const char *list, void (*f)(struct sites *s, const char *dir))
{
    char dir[PATH_MAX];
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && n < sizeof(dir)) {
            memcpy(dir, list, n);
            dir[n] = '\0';
            f(s, dir);
        }
        list += n + (list[n] == ':');
    }
}

/* Adds the packages of /opt/venv for /opt/venv/bin, and of all versions for ~/.pyenv/shims. */
static void add_bin(struct sites *s, const char *dir)
{
    char prefix[PATH_MAX];
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n >= 4 && strncmp(dir + n - 4, "/bin", 4) == 0)
        snprintf(prefix, sizeof(prefix), "%.*s", (int)(n - 4), dir);
    else if (n >= 6 && strncmp(dir + n - 6, "/shims", 6) == 0)
        snprintf(prefix, sizeof(prefix), "%.*s/versions/*", (int)(n - 6), dir);
    else
        return;
    add_prefix(s, prefix);
}

/* Adds the packages of the installation that this program belongs to. */
static void add_own(struct sites *s)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash = NULL;
    self[n < 0 ? 0 : n] = '\0';
    if ((slash = strrchr(self, '/')))
        *slash = '\0';
    add_bin(s, self);
}

static void add_home(struct sites *s, const char *home)
{
    char prefix[PATH_MAX];
    snprintf(prefix, sizeof(prefix), "%s/.local", home);
    add_prefix(s, prefix);
}

void sites_find(struct sites *ret)
{
    const char *venv = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX");
    const char *home = getenv("HOME");
    *ret = (struct sites){.n = 0};
    each(ret, getenv("PYTHONPATH"), add);
    if (venv)
        add_prefix(ret, venv);
    if (conda)
        add_prefix(ret, conda);
    each(ret, getenv("PATH"), add_bin);
    add_own(ret);
    if (home)
        add_home(ret, home);
    add(ret, "/usr/lib/python3/dist-packages");
    add_prefix(ret, "/usr/local");
    add_prefix(ret, "/usr");
    add_prefix(ret, "/opt/conda");
}

void sites_fini(struct sites *sites)
{
    for (int i = 0; i < sites->n; i++)
        free(sites->dir[i]);
    sites->n = 0;
}
