/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_cgroup: what the doctor reads from /proc. The first byte chooses between control groups
 * (/proc/self/cgroup, a NUL, /proc/self/mountinfo), mounts, limits, lists of processors, the
 * kernel's log in both forms and /proc/PID/stat.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/cgroup.h"
#include "diagnostics/mounts.h"
#include "diagnostics/probes/kmsg.h"
#include "diagnostics/probes/procs.h"
#include "diagnostics/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void groups(const char *text, size_t len)
{
    static struct cgroup cg;
    size_t first = strlen(text);
    const char *mountinfo = first < len ? text + first + 1 : "";
    int rc = cgroup_parse(text, mountinfo, &cg);
    for (int i = 0; i < CGROUP_KINDS; i++) {
        const struct cgroup_place *at = &cg.at[i];
        size_t n = strnlen(at->dir, sizeof(at->dir));
        if (n >= sizeof(at->dir) || at->top > n || (rc < 0 && at->version))
            abort();
        /* it must never leave the mount */
        if (at->version && strstr(at->dir + at->top, "/.."))
            abort();
    }
}

static void mounts(const char *text)
{
    static struct mount mount;
    int n = 0;
    for (const char *at = text; mounts_next(&at, &mount); n++) {
        if (mount.point[0] != '/')
            abort();
        mount_is_remote(&mount);
        mount_has(mount.super, "ro");
    }
    if (mounts_of(text, "/a/b", &mount) && n == 0)
        abort();
}

static void cpus(const char *text)
{
    static struct proc_cpus set;
    if (proc_cpus_parse(text, &set) == 0 &&
        proc_cpus_meet(&set, &set) != (proc_cpus_count(&set) > 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t soft, hard;
    struct procs_stat st;
    const char *line;
    double when;
    if (size == 0)
        return 0;
    /* An exact copy, so that a sanitizer sees a read past the end. */
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 7) {
    case 0:
        groups(text, size - 1);
        break;
    case 1:
        mounts(text);
        break;
    case 2:
        proc_limit_parse(text, "Max open files", &soft, &hard);
        break;
    case 3:
        cpus(text);
        break;
    case 4:
        kmsg_record(text, &line, &when);
        break;
    case 5:
        kmsg_line(text, &line, &when);
        break;
    default:
        if (procs_stat_parse(text, &st) && strnlen(st.name, sizeof(st.name)) == sizeof(st.name))
            abort();
    }
    free(text);
    return 0;
}
