/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: /dev/shm: its size, whether memory can be allocated there, segments of ended jobs.
 *
 * Runs in children of its own. The trial uses a file without a name, which vanishes even after
 * SIGKILL. Answers: "shm" total free unlimited type mode writable readonly, and of the trial alloc
 * (0 or errno; absent: not tried), alloc_bytes, untried (why); "shm-files" files, stale_count,
 * stale_bytes, unknown (segments that may be in use by processes that we may not inspect), list
 * stale (name bytes age_s).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/cgroup.h"
#include "diagnostics/probe.h"
#include "diagnostics/probes/shm.h"

#define TRIAL_BYTES (16ul << 20)
#define ROOM_LEAST  (4 * TRIAL_BYTES)
#define FILES_MAX   4096
#define LISTED      8
#define LOOK_MS     400
#define TMPFS       0x01021994
#define RAMFS       0x858458f6
#define HUGETLBFS   0x958458f6
#define OVERLAY     0x794c7630
#define EXT         0xef53
#define XFS         0x58465342

/* ---- size and trial ---- */

static const char *type_name(unsigned long type, char dst[32])
{
    switch (type) {
    case TMPFS:
        return "tmpfs";
    case RAMFS:
        return "ramfs";
    case HUGETLBFS:
        return "hugetlbfs";
    case OVERLAY:
        return "overlay";
    case EXT:
        return "ext4";
    case XFS:
        return "xfs";
    default:
        snprintf(dst, 32, "0x%lx", type);
        return dst;
    }
}

/* Opens a file without a name. Where O_TMPFILE is not supported, the name is removed at once. */
static int open_trial(const char *dir)
{
    char path[256];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd < 0 ? -errno : fd;
    snprintf(path, sizeof(path), "%s/hvd-doctor-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

static int try_alloc(const char *dir)
{
    auto_close int fd = open_trial(dir);
    if (fd < 0)
        return -fd;
    if (fallocate(fd, 0, 0, TRIAL_BYTES) < 0)
        return errno;
    char *p = mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    for (size_t at = 0; at < TRIAL_BYTES; at += 4096) /* a SIGBUS here is reported, too */
        p[at] = 1;
    munmap(p, TRIAL_BYTES);
    return 0;
}

/* If memory runs out during the trial, the kernel should kill this process and not a rank. */
static void volunteer(void)
{
    auto_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        fd_write_full(fd, "1000", 4, deadline_in_ms(100));
}

int shm_look(struct buf *out, const char *dir, uint64_t room)
{
    struct statvfs vfs;
    struct statfs fs;
    struct stat st;
    char type[32];
    if (statvfs(dir, &vfs) < 0 || statfs(dir, &fs) < 0 || stat(dir, &st) < 0)
        return -errno;
    uint64_t total = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    bool unlimited = total == 0 && (unsigned long)fs.f_type == TMPFS;
    answer_put(out, "total", "%llu", (unsigned long long)total);
    answer_put(out, "free", "%llu", (unsigned long long)left);
    answer_put(out, "unlimited", "%d", unlimited);
    answer_put(out, "type", "%s", type_name((unsigned long)fs.f_type, type));
    answer_put(out, "mode", "%04o", (unsigned)st.st_mode & 07777);
    answer_put(out, "writable", "%d", access(dir, W_OK | X_OK) == 0);
    answer_put(out, "readonly", "%d", (vfs.f_flag & ST_RDONLY) != 0);
    answer_put(out, "alloc_bytes", "%lu", TRIAL_BYTES);
    if (!unlimited && left < TRIAL_BYTES) {
        /* ENOSPC is certain, and the trial would take the last space from other processes */
        answer_put(out, "alloc", "%d", ENOSPC);
    } else if (room < ROOM_LEAST) {
        answer_put(out, "untried", "the memory limit leaves %llu MiB",
                   (unsigned long long)(room >> 20));
    } else {
        volunteer();
        answer_put(out, "alloc", "%d", try_alloc(dir));
    }
    return 0;
}

static int run_shm(struct buf *out, const struct machine *m, const struct setting *s)
{
    struct cgroup cg;
    struct cgroup_memory memory = {.room = CGROUP_NO_LIMIT};
    int64_t kib;
    uint64_t room = CGROUP_NO_LIMIT;
    if (machine_field_int(m, "proc/meminfo", "MemAvailable", &kib) == 0 && kib >= 0)
        room = (uint64_t)kib * 1024;
    if (cgroup_find(m, &cg) == 0 && cgroup_memory(m, &cg, &memory) == 0 && memory.room < room)
        room = memory.room;
    return shm_look(out, "/dev/shm", room);
}

struct segment {
    char name[128];
    dev_t dev;
    ino_t ino;
    uid_t uid;
    uint64_t bytes;
    long age_s;
    bool used;
};

static bool is_segment(const char *name)
{
    static const char *const heads[] = {"nccl-",   "vader_segment", "sm_segment",
                                        "torch_",  "psm_",          "psm2_shm",
                                        "ucx_shm", "mpich_shar_",   "Intel_MPI_"};
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        if (strncmp(name, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

static int list_segments(const char *dir, struct segment *list, int *ret_n, int *ret_files)
{
    time_t now = time(NULL);
    DIR *d = opendir(dir);
    int n = 0, files = 0;
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d)) && files < FILES_MAX;) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        files++;
        if (!is_segment(e->d_name))
            continue;
        list[n] = (struct segment){.dev = st.st_dev,
                                   .ino = st.st_ino,
                                   .uid = st.st_uid,
                                   .bytes = (uint64_t)st.st_blocks * 512,
                                   .age_s = now > st.st_ctime ? (long)(now - st.st_ctime) : 0};
        snprintf(list[n].name, sizeof(list[n].name), "%.127s", e->d_name);
        n++;
    }
    closedir(d);
    *ret_n = n;
    *ret_files = files;
    return 0;
}

/* Marks a segment as used, by its inode: the name may have been reused. */
static void mark(struct segment *list, int n, ino_t ino)
{
    for (int i = 0; i < n; i++)
        if (list[i].ino == ino)
            list[i].used = true;
}

/* Marks the segments in one /proc/PID/maps, read line by line. 0 or -errno. */
static int mark_maps(struct segment *list, int n, const char *pid, const char *dir)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    while (fgets(line, sizeof(line), f)) {
        unsigned long ino;
        if (strstr(line, dir) && sscanf(line, "%*s %*s %*s %*s %lu", &ino) == 1)
            mark(list, n, ino);
    }
    int rc = ferror(f) ? -EIO : 0;
    fclose(f);
    return rc;
}

/* Marks segments that a process has open without mapping them. */
static void mark_fds(struct segment *list, int n, const struct machine *m, const char *pid,
                     const char *dir)
{
    char path[64];
    auto_free char **names = NULL;
    snprintf(path, sizeof(path), "proc/%.20s/fd", pid);
    if (machine_list(m, path, &names, NULL) < 0)
        return;
    for (size_t i = 0; names[i]; i++) {
        char fd[128], target[512];
        struct stat st;
        snprintf(fd, sizeof(fd), "proc/%.20s/fd/%.20s", pid, names[i]);
        if (machine_readlink(m, fd, target, sizeof(target)) == 0 &&
            strncmp(target, dir, strlen(dir)) == 0 && fstatat(m->root, fd, &st, 0) == 0)
            mark(list, n, st.st_ino);
    }
}

/* Inspects all processes. Returns how many could not be inspected; -1: none could, or the time was
 * too short, so that no segment can be called unused. */
static int mark_all(struct segment *list, int n, const struct machine *m, const char *dir)
{
    auto_free char **names = NULL;
    uint64_t deadline = deadline_in_ms(LOOK_MS);
    int unseen = 0, seen = 0;
    if (machine_list(m, "proc", &names, NULL) < 0)
        return -1;
    for (size_t i = 0; names[i]; i++) {
        if (names[i][0] < '0' || names[i][0] > '9')
            continue;
        if (deadline_passed(deadline))
            return -1;
        int rc = mark_maps(list, n, names[i], dir);
        seen += rc == 0;
        if (rc == 0)
            mark_fds(list, n, m, names[i], dir);
        else if (rc != -ENOENT && rc != -ESRCH)
            unseen++;
    }
    return seen ? unseen : -1; /* without /proc even this process is not visible */
}

int shm_files(struct buf *out, const struct machine *m, const char *dir)
{
    auto_free struct segment *list = calloc(FILES_MAX, sizeof(*list));
    int n = 0, files = 0, stale = 0, unknown = 0;
    uint64_t bytes = 0;
    int rc = list ? list_segments(dir, list, &n, &files) : -ENOMEM;
    if (rc < 0)
        return rc;
    int unseen = n ? mark_all(list, n, m, dir) : 0;
    for (int i = 0; i < n; i++) {
        if (list[i].used)
            continue;
        if (unseen < 0 || (unseen && list[i].uid != geteuid())) {
            unknown++;
            continue;
        }
        if (stale < LISTED) {
            answer_put_at(out, "stale", stale, "name", "%s", list[i].name);
            answer_put_at(out, "stale", stale, "bytes", "%llu", (unsigned long long)list[i].bytes);
            answer_put_at(out, "stale", stale, "age_s", "%ld", list[i].age_s);
        }
        stale++;
        bytes += list[i].bytes;
    }
    answer_put(out, "files", "%d", files);
    answer_put(out, "unknown", "%d", unknown);
    answer_put(out, "stale_count", "%d", stale);
    answer_put(out, "stale_bytes", "%llu", (unsigned long long)bytes);
    return 0;
}

static int run_files(struct buf *out, const struct machine *m, const struct setting *s)
{
    return shm_files(out, m, "/dev/shm");
}

static const struct probe probes[] = {
    {.name = "shm", .level = 1, .run = run_shm},
    {.name = "shm-files", .level = 1, .run = run_files},
};

const struct probe_table probes_shm = {probes, sizeof(probes) / sizeof(probes[0])};
