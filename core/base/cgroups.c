/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroups: see cgroups.h.
 */
#include "core/base/cgroups.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define FILE_MAX 65536

struct walk {
    const char *root, *controller;
    cgroups_each_f each;
    void *ctx;
};

int cgroups_read(const char *root, const char *folder, const char *name, char **ret_text)
{
    char path[4096];
    int len = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    return fd_read_file(path, FILE_MAX, ret_text, NULL);
}

/* The folders from mount/path up to mount. */
static void walk_up(const struct walk *w, const char *mount, const char *path, int version)
{
    char folder[4096];
    int len = snprintf(folder, sizeof(folder), "%s%s", mount, path);
    if (len < 0 || (size_t)len >= sizeof(folder))
        return;
    for (;;) {
        w->each(w->ctx, w->root, folder, version);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(mount))
            return;
        *slash = '\0';
    }
}

/* Takes one line of /proc/self/cgroup, which has the form "id:controllers:path". */
static void walk_line(const struct walk *w, char *line)
{
    char *controllers = strchr(line, ':');
    if (!controllers)
        return;
    controllers++;
    char *path = strchr(controllers, ':');
    if (!path)
        return;
    *path++ = '\0';
    if (!*controllers) {
        walk_up(w, "/sys/fs/cgroup", path, 2);
        walk_up(w, "/sys/fs/cgroup/unified", path, 2); /* version 1 and 2 at once */
        return;
    }
    char mount[256];
    bool found = false;
    snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controllers);
    for (char *save = NULL, *word = strtok_r(controllers, ",", &save); word;
         word = strtok_r(NULL, ",", &save))
        found = found || strcmp(word, w->controller) == 0;
    if (found)
        walk_up(w, mount, path, 1);
}

void cgroups_each(const char *root, const char *controller, cgroups_each_f each, void *ctx)
{
    const struct walk w = {root, controller, each, ctx};
    auto_free char *text = NULL;
    if (cgroups_read(root, "/proc/self", "cgroup", &text) < 0)
        return;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        walk_line(&w, line);
}
