/* SPDX-License-Identifier: Apache-2.0
 *
 * active: tests that load this machine for a second or two each: shared memory, memory, loopback
 * and storage. They run alone, one after the other, and never while ranks of another job run
 * (doctor.c refuses it).
 *
 * Answers: "active-shm", "active-memory", "active-loopback": bytes, seconds, and what was measured;
 * "active-storage": the same of a file of the data set.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/cgroup.h"
#include "diagnostics/probe.h"

#define SECOND_MS  1000
#define TRIAD_MS   2000
#define SLOT_BYTES (4u << 20)
#define TRIAD_N    (4ull << 20) /* doubles in each of three arrays: beyond any cache */
#define STORE_MAX  (1ull << 30)
#define STORE_MIN  (16ull << 20)
#define LIMIT_MS   8000

static void put_rate(struct buf *out, uint64_t bytes, uint64_t ns)
{
    answer_put(out, "bytes", "%llu", (unsigned long long)bytes);
    answer_put(out, "seconds", "%.3f", (double)ns / CLOCK_S);
}

/* Forks a child that is killed when this process ends. Returns 0 in the child. */
static pid_t fork_helper(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

static void end_helper(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- shared memory: one process fills a slot, another copies it out -------------------------- */

struct slot {
    _Atomic uint32_t full;
    uint32_t pad[15];
    uint8_t bytes[SLOT_BYTES];
};

static void copy_out(struct slot *slot, uint8_t *own)
{
    for (;;) {
        while (!atomic_load_explicit(&slot->full, memory_order_acquire))
            sched_yield();
        memcpy(own, slot->bytes, SLOT_BYTES);
        atomic_store_explicit(&slot->full, 0, memory_order_release);
    }
}

/* Opens shared memory in /dev/shm if it has room, as NCCL and DataLoader workers do, else a
 * memfd. */
static int open_shared(const char **ret_where)
{
    char name[64];
    snprintf(name, sizeof(name), "/hvd-doctor-%d", (int)getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) {
        shm_unlink(name);
        *ret_where = "/dev/shm";
        if (posix_fallocate(fd, 0, sizeof(struct slot)) == 0)
            return fd;
        close(fd);
    }
    *ret_where = "a memfd (no room in /dev/shm)";
    fd = memfd_create("hvd-doctor", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, sizeof(struct slot)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int run_shm(struct buf *out, const struct machine *m, const struct setting *s)
{
    const char *where;
    auto_close int fd = open_shared(&where);
    auto_free uint8_t *own = malloc(SLOT_BYTES);
    struct slot *slot =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slot == MAP_FAILED || !own)
        return fd < 0 ? -errno : -ENOMEM;
    memset(own, 1, SLOT_BYTES);
    memset(slot, 0, sizeof(*slot));
    pid_t pid = fork_helper();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        copy_out(slot, own);
    uint64_t bytes = 0, start = clock_ns(), deadline = deadline_in_ms(SECOND_MS);
    while (!deadline_passed(deadline)) {
        while (atomic_load_explicit(&slot->full, memory_order_acquire) &&
               !deadline_passed(deadline))
            sched_yield();
        memcpy(slot->bytes, own, SLOT_BYTES);
        atomic_store_explicit(&slot->full, 1, memory_order_release);
        bytes += SLOT_BYTES;
    }
    uint64_t ns = clock_ns() - start;
    end_helper(pid);
    put_rate(out, bytes, ns);
    answer_put(out, "where", "%s", where);
    return 0;
}

/* ---- memory: STREAM's triad (McCalpin), a process a usable processor --------------------------
 */

static void triad(_Atomic uint64_t *ret_bytes, size_t n, uint64_t deadline)
{
    double *a = calloc(3 * n, sizeof(*a));
    double *b = a ? a + n : NULL, *c = a ? b + n : NULL;
    if (!a)
        return;
    for (size_t i = 0; i < 3 * n; i++)
        a[i] = (double)i;
    while (!deadline_passed(deadline)) {
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + 3.0 * c[i];
        atomic_fetch_add(ret_bytes, 3 * n * sizeof(*a));
    }
    /* uses the result, so that the compiler keeps the sums */
    volatile double sink = a[n / 2];
    (void)sink;
    free(a);
}

static int usable_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

/* Elements of an array for each of n processes. Takes at most a quarter of the free memory, so
 * that the test causes no out-of-memory kill. */
static size_t triad_size(const struct machine *m, int n)
{
    struct cgroup cg;
    struct cgroup_memory limit;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t room = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 64ull << 20;
    if (cgroup_find(m, &cg) == 0 && cgroup_memory(m, &cg, &limit) == 0 && limit.room < room)
        room = limit.room;
    uint64_t fits = room / 4 / (uint64_t)n / (3 * sizeof(double));
    return fits < TRIAD_N ? (size_t)fits + 1 : TRIAD_N;
}

static int run_memory(struct buf *out, const struct machine *m, const struct setting *s)
{
    pid_t pids[256];
    int n = usable_cpus() < 256 ? usable_cpus() : 256, started = 0;
    _Atomic uint64_t *bytes =
        mmap(NULL, sizeof(*bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    size_t size = triad_size(m, n);
    uint64_t start = clock_ns(), deadline = deadline_in_ms(TRIAD_MS);
    while (started < n) {
        pid_t pid = fork_helper();
        if (pid < 0)
            break;
        if (pid == 0) {
            triad(bytes, size, deadline);
            _exit(0);
        }
        pids[started++] = pid;
    }
    for (int i = 0; i < started; i++)
        waitpid(pids[i], NULL, 0);
    put_rate(out, atomic_load(bytes), clock_ns() - start);
    answer_put(out, "processes", "%d", started);
    return started ? 0 : -EAGAIN;
}

/* ---- TCP over loopback ------------------------------------------------------------------------
 */

/* Makes the two ends of a connection over 127.0.0.1. */
static int connect_self(int *ret_a, int *ret_b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto_close int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || a < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 ||
        listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&at, &len) < 0 ||
        connect(a, (struct sockaddr *)&at, len) < 0)
        return -errno;
    auto_close int b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (b < 0)
        return -errno;
    *ret_a = take_fd(&a);
    *ret_b = take_fd(&b);
    return 0;
}

static int run_loopback(struct buf *out, const struct machine *m, const struct setting *s)
{
    int to = -1, from = -1, rc = connect_self(&to, &from);
    auto_free uint8_t *chunk = calloc(1, 1 << 20);
    if (rc < 0 || !chunk)
        return rc < 0 ? rc : -ENOMEM;
    pid_t pid = fork_helper();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        while (write(to, chunk, 1 << 20) > 0)
            continue;
        _exit(0);
    }
    close(to);
    uint64_t bytes = 0, start = clock_ns(), deadline = deadline_in_ms(SECOND_MS);
    while (!deadline_passed(deadline)) {
        struct pollfd p = {.fd = from, .events = POLLIN};
        ssize_t n = poll(&p, 1, 200) > 0 ? read(from, chunk, 1 << 20) : 0;
        if (n < 0)
            break;
        bytes += (uint64_t)n;
    }
    put_rate(out, bytes, clock_ns() - start);
    end_helper(pid);
    close(from);
    return 0;
}

/* ---- storage: the largest file of the data set, read once -------------------------------------
 */

static int open_largest(const char *dir, char *name, size_t size)
{
    DIR *d = opendir(dir);
    int best = -1;
    off_t most = (off_t)STORE_MIN - 1;
    if (!d)
        return -errno;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            st.st_size <= most)
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        if (best >= 0)
            close(best);
        best = fd;
        most = st.st_size;
        snprintf(name, size, "%s", e->d_name);
    }
    closedir(d);
    return best >= 0 ? best : -ENOENT;
}

static int run_storage(struct buf *out, const struct machine *m, const struct setting *s)
{
    char name[NAME_MAX + 1] = "";
    const char *dir = s->data_dir ? s->data_dir : ".";
    auto_close int fd = open_largest(dir, name, sizeof(name));
    auto_free uint8_t *chunk = malloc(SLOT_BYTES);
    if (fd < 0 || !chunk)
        return fd < 0 ? fd : -ENOMEM;
    /* Drops the file's pages from the page cache, so that the disk is measured; pages that other
     * processes use stay. */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    uint64_t bytes = 0, start = clock_ns(), deadline = deadline_in_ms(2 * SECOND_MS);
    while (bytes < STORE_MAX && !deadline_passed(deadline)) {
        ssize_t n = read(fd, chunk, SLOT_BYTES);
        if (n <= 0)
            break;
        bytes += (uint64_t)n;
    }
    put_rate(out, bytes, clock_ns() - start);
    answer_put(out, "file", "%s/%s", dir, name);
    return 0;
}

static const struct probe rows[] = {
    {.name = "active-shm", .level = 2, .ms = LIMIT_MS, .run = run_shm, .alone = true},
    {.name = "active-memory", .level = 2, .ms = LIMIT_MS, .run = run_memory, .alone = true},
    {.name = "active-loopback", .level = 2, .ms = LIMIT_MS, .run = run_loopback, .alone = true},
    {.name = "active-storage", .level = 2, .ms = LIMIT_MS, .run = run_storage, .alone = true},
};

const struct probe_table probes_active = {rows, sizeof(rows) / sizeof(rows[0])};
