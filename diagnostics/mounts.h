/* SPDX-License-Identifier: Apache-2.0
 *
 * mounts: parses lines of /proc/self/mountinfo. The text is untrusted: a line that does not parse
 * is skipped.
 *
 * Used by checks, probes and cgroup.c; pure, any thread.
 */
#ifndef HVD_DIAGNOSTICS_MOUNTS_H
#define HVD_DIAGNOSTICS_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#define MOUNT_PATH 1024

/* A line with longer paths is skipped; longer options and sources are cut. */
struct mount {
    char root[MOUNT_PATH];  /* the folder of the file system that is mounted: "/" or one in it */
    char point[MOUNT_PATH]; /* where it is mounted */
    char options[256];      /* options of this mount: "rw,relatime" */
    char type[64];          /* "ext4" */
    char source[256];       /* "/dev/sda1", "server:/export" */
    char super[512];        /* options of the file system: "rw,errors=continue" */
};

/* Parses the next valid line of *text, and moves *text behind it; false at the end. */
bool mounts_next(const char **text, struct mount *ret);

/* Finds the mount that an absolute path is on: the deepest, and the last of several at one
 * point; false: there is none. */
bool mounts_of(const char *text, const char *path, struct mount *ret);

/* True when the comma-separated list has the word. */
bool mount_has(const char *options, const char *word);

/* Returns whether the file system is served by another machine or process: access to it can
 * hang. */
bool mount_is_remote(const struct mount *m);

#endif
