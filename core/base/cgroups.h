/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroups: the folders of the control groups whose limits apply to this process, version 1 and 2,
 * from its own group up to the root of the mount. Used by cpus and memory. Any thread; reads files
 * at each call.
 */
#ifndef HVD_BASE_CGROUPS_H
#define HVD_BASE_CGROUPS_H

/* version: 1 or 2. folder: "/sys/fs/cgroup/memory/x", for cgroups_read(). */
typedef void (*cgroups_each_f)(void *ctx, const char *root, const char *folder, int version);

/* Calls `each` for every folder that may have limits of this controller ("cpu", "memory"). A folder
 * need not exist: the path in /proc/self/cgroup may be the host's, of which a container sees a
 * part. root is put before /proc and /sys: "" for this machine, a folder in tests. */
void cgroups_each(const char *root, const char *controller, cgroups_each_f each, void *ctx);

/* Reads a file of a folder into a new string, which the caller frees. 0 or -errno. */
int cgroups_read(const char *root, const char *folder, const char *name, char **ret_text);

#endif
