/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_net: see nccl_net.h.
 */
#include "core/backend/nccl_net.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/library.h"

/* Returns the value of an environment variable; NULL: not set, or empty. */
static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns whether the folder lists a device, or exists and cannot be read: it may list one then. */
static bool has_ports(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = !dir && errno != ENOENT;
    while (dir && !found && (entry = readdir(dir)))
        found = entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return found;
}

static bool has_plugin(void)
{
    static const char *const names[] = {"libnccl-net.so", NULL};
    const char *plugin = setting("NCCL_NET_PLUGIN");
    void *handle;
    if (plugin)
        return strcasecmp(plugin, "none") != 0;
    return library_open(names, NULL, 0, &handle, NULL) == 0;
}

bool nccl_net_is_sockets(const char *ports)
{
    const char *net = setting("NCCL_NET"), *disable = setting("NCCL_IB_DISABLE");
    if (net)
        return strcasecmp(net, "Socket") == 0;
    if (!(disable && atoi(disable) != 0) && has_ports(ports))
        return false;
    return !has_plugin();
}
