/* SPDX-License-Identifier: Apache-2.0
 *
 * mounts: lines of /proc/self/mountinfo. Foreign text: a line that is none is passed over.
 *
 * Used by checks, probes and cgroup.c; pure, any thread.
 */
#ifndef HVD_DIAGNOSTICS_MOUNTS_H
#define HVD_DIAGNOSTICS_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#define MOUNT_PATH 1024

/* Longer fields make a line that is passed over (paths) or are cut (options, source). */
struct mount {
    char root[MOUNT_PATH];  /* what of the file system is mounted: "/" or a folder in it */
    char point[MOUNT_PATH]; /* where */
    char options[256];      /* of this mount: "rw,relatime" */
    char type[64];          /* "ext4" */
    char source[256];       /* "/dev/sda1", "server:/export" */
    char super[512];        /* of the file system: "rw,errors=continue" */
};

/* The next good line of *text, which moves behind it; false at the end. */
bool mounts_next(const char **text, struct mount *ret);

/* The mount that an absolute path is on: the deepest, the last of several at one place. */
bool mounts_of(const char *text, const char *path, struct mount *ret);

/* True when the comma-separated list has the word. */
bool mount_has(const char *options, const char *word);

/* File systems that live on another machine or in another process: they can hang. */
bool mount_is_remote(const struct mount *m);

#endif
