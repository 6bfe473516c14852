/* SPDX-License-Identifier: Apache-2.0
 *
 * world: see world.h.
 */
#include "tests/harness/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/port.h"
#include "tests/harness/sweeper.h"
#include "tests/harness/wire.h"

#define WORLD_MAX_RANKS 64
#define WORLD_MAX_HOSTS 16

struct world {
    struct world_options options;
    pid_t pids[WORLD_MAX_RANKS];
    int status[WORLD_MAX_RANKS];
    bool gone[WORLD_MAX_RANKS];
    char dir[64];
    char key_file[96];
    char rendezvous[64];
    char prefix[32]; /* prefix of the namespaces' names */
    int namespaces;  /* created so far, without that of the switch */
    pid_t wire;      /* 0: none */
    struct sweeper sweeper;
    uint64_t deadline;
};

void *world_shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *world_board(size_t size)
{
    static void *board;
    static size_t board_size;
    if (board_size != size) {
        board = world_shared(size);
        board_size = size;
    }
    return board ? memset(board, 0, size) : NULL;
}

static int run_quiet(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int run_quiet(const char *fmt, ...)
{
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(cmd, sizeof(cmd) - 16, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(cmd) - 16)
        return -ENAMETOOLONG;
    memcpy(cmd + n, " >/dev/null 2>&1", sizeof(" >/dev/null 2>&1"));
    /* Safe: the commands are fixed texts of this file. */
    int rc = system(cmd); /* NOLINT(cert-env33-c) */
    return rc == 0 ? 0 : -EIO;
}

bool world_can_netns(const char *test_id)
{
    char name[32];
    snprintf(name, sizeof(name), "hvdt%d", (int)getpid());
    bool ok = geteuid() == 0 && run_quiet("ip netns add %s && ip netns del %s", name, name) == 0;
    if (!ok)
        printf("SKIP: %s: root: network namespaces cannot be made here\n", test_id);
    return ok;
}

/* Creates a private folder, and a sweeper that removes it and everything else at the end. */
static int make_dir(struct world *w)
{
    static int serial;
    int hosts = w->options.hosts > 1 ? w->options.hosts : 0;
    snprintf(w->prefix, sizeof(w->prefix), "hvdw%d-%d-", (int)getpid(), serial++);
    snprintf(w->dir, sizeof(w->dir), "/tmp/hvd-world-XXXXXX");
    if (!mkdtemp(w->dir))
        return -errno;
    int rc = sweeper_start(&w->sweeper, w->dir, w->prefix, hosts);
    if (rc < 0)
        rmdir(w->dir);
    return rc;
}

static int make_key(struct world *w)
{
    snprintf(w->key_file, sizeof(w->key_file), "%s/key", w->dir);
    auto_close int fd = open(w->key_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    unsigned char key[32];
    if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
        return -EIO;
    char hex[2 * sizeof(key) + 1];
    for (size_t i = 0; i < sizeof(key); i++)
        snprintf(hex + 2 * i, 3, "%02x", key[i]);
    return write(fd, hex, sizeof(hex) - 1) == (ssize_t)sizeof(hex) - 1 ? 0 : -EIO;
}

static int add_host(struct world *w, int h)
{
    const char *p = w->prefix;
    int rc;
    if (run_quiet("ip netns add %s%d", p, h) != 0)
        return -ENOTSUP;
    w->namespaces = h + 1;
    if (w->options.delay_us)
        rc = run_quiet("ip -n %s%d tuntap add dev eth0 mode tun", p, h);
    else
        rc = run_quiet("ip link add eth0 netns %s%d type veth peer name h%d netns %ss && "
                       "ip -n %ss link set h%d master br0 up",
                       p, h, h, p, p, h);
    if (rc < 0 || run_quiet("ip -n %s%d addr add 10.77.0.%d/24 dev eth0 && "
                            "ip -n %s%d link set eth0 up && ip -n %s%d link set lo up",
                            p, h, h + 1, p, h, p, h) != 0)
        return -ENOTSUP;
    if (w->options.shape &&
        run_quiet("ip netns exec %s%d tc qdisc add dev eth0 root %s", p, h, w->options.shape) != 0)
        return -ENOTSUP;
    return 0;
}

static int make_hosts(struct world *w)
{
    if (geteuid() != 0 || w->options.hosts > WORLD_MAX_HOSTS)
        return -ENOTSUP;
    if (run_quiet("ip netns add %ss", w->prefix) != 0)
        return -ENOTSUP;
    if (run_quiet("ip -n %ss link add br0 type bridge forward_delay 0 && "
                  "ip -n %ss link set br0 up",
                  w->prefix, w->prefix) != 0)
        return -ENOTSUP;
    for (int h = 0; h < w->options.hosts; h++) {
        int rc = add_host(w, h);
        if (rc < 0)
            return rc;
    }
    if (w->options.delay_us)
        w->wire = wire_start(w->prefix, w->options.hosts, w->options.delay_us);
    return w->wire < 0 ? w->wire : 0;
}

static void world_free(struct world *w)
{
    wire_end(w->wire);
    sweeper_end(&w->sweeper);
    free(w);
}

static int host_of(const struct world_options *o, int rank)
{
    int each = o->size / o->hosts, more = o->size % o->hosts;
    int large = (each + 1) * more;
    return rank < large ? rank / (each + 1) : more + (rank - large) / each;
}

static int enter_host(const struct world *w, int rank)
{
    char path[64];
    snprintf(path, sizeof(path), "/run/netns/%s%d", w->prefix, host_of(&w->options, rank));
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

static void clean_env(void)
{
    static const char *const foreign[] = {
        "HVD_AGENT_FD", "PMIX_RANK",  "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID", "RANK",       "WORLD_SIZE",     "MASTER_ADDR",
        "MASTER_PORT",  "LOCAL_RANK", "HVD_TIMELINE",
    };
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        unsetenv(foreign[i]);
}

static int run_rank(struct world *w, int rank, world_rank_f fn, void *arg, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sweeper_leave(&w->sweeper);
    if (getppid() != parent)
        return 98;
    if (w->namespaces && enter_host(w, rank) < 0)
        return 97;
    clean_env();
    char n[16];
    snprintf(n, sizeof(n), "%d", rank);
    setenv("HVD_RANK", n, 1);
    snprintf(n, sizeof(n), "%d", w->options.size);
    setenv("HVD_SIZE", n, 1);
    setenv("HVD_RENDEZVOUS", w->rendezvous, 1);
    setenv("HVD_KEY_FILE", w->key_file, 1);
    for (const char *const *e = w->options.env; e && *e; e++)
        putenv((char *)*e);
    return fn(rank, w->options.size, arg);
}

static int fork_rank(struct world *w, int rank, world_rank_f fn, void *arg)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        /* exit(), not _exit(): sanitizers report leaks there. */
        int code = run_rank(w, rank, fn, arg, parent);
        fflush(NULL);
        exit(code);
    }
    w->pids[rank] = pid;
    w->gone[rank] = false;
    return 0;
}

int world_start(const struct world_options *options, world_rank_f fn, void *arg, struct world **ret)
{
    if (options->size < 1 || options->size > WORLD_MAX_RANKS)
        return -EINVAL;
    struct world *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->options = *options;
    for (int r = 0; r < WORLD_MAX_RANKS; r++)
        w->gone[r] = true;
    w->deadline = deadline_in_ms((options->timeout_s ? options->timeout_s : 200) * 1000ULL);
    int rc = make_dir(w);
    if (rc == 0)
        rc = make_key(w);
    int port = port_free();
    if (rc == 0 && port < 0)
        rc = port;
    bool spread = options->hosts > 1;
    snprintf(w->rendezvous, sizeof(w->rendezvous), "%s:%d", spread ? "10.77.0.1" : "127.0.0.1",
             port);
    if (rc == 0 && spread)
        rc = make_hosts(w);
    fflush(NULL);
    for (int r = 0; rc == 0 && r < options->size; r++)
        rc = fork_rank(w, r, fn, arg);
    if (rc < 0) {
        w->deadline = 0;
        world_wait(w, NULL);
        return rc;
    }
    *ret = w;
    return 0;
}

int world_kill(const struct world *w, int rank, int sig)
{
    return w->gone[rank] || kill(w->pids[rank], sig) == 0 ? 0 : -errno;
}

static int reap(struct world *w)
{
    int left = 0;
    for (int r = 0; r < w->options.size; r++) {
        if (!w->gone[r] && waitpid(w->pids[r], &w->status[r], WNOHANG) == w->pids[r])
            w->gone[r] = true;
        left += !w->gone[r];
    }
    return left;
}

static void say_status(int rank, int status)
{
    if (WIFSIGNALED(status))
        printf("rank %d: signal %d\n", rank, WTERMSIG(status));
    else
        printf("rank %d: exit code %d\n", rank, WEXITSTATUS(status));
}

int world_wait(struct world *w, int *ret_status)
{
    struct timespec nap = {.tv_nsec = 1000000};
    while (reap(w) > 0 && !deadline_passed(w->deadline))
        nanosleep(&nap, NULL);
    for (int r = 0; r < w->options.size; r++) {
        if (w->gone[r])
            continue;
        printf("rank %d: no end in %d s, killed\n", r,
               w->options.timeout_s ? w->options.timeout_s : 200);
        kill(w->pids[r], SIGKILL);
        waitpid(w->pids[r], &w->status[r], 0);
        w->gone[r] = true;
    }
    int bad = 0;
    for (int r = 0; r < w->options.size; r++) {
        bad += w->status[r] != 0;
        if (ret_status)
            ret_status[r] = w->status[r];
        else if (w->status[r] != 0)
            say_status(r, w->status[r]);
    }
    world_free(w);
    return bad;
}

int world_run_options(const struct world_options *options, world_rank_f fn, void *arg)
{
    struct world *w = NULL;
    int rc = world_start(options, fn, arg, &w);
    if (rc < 0) {
        printf("world_start: %s\n", strerror(-rc));
        return options->size;
    }
    return world_wait(w, NULL);
}

int world_run(int size, world_rank_f fn, void *arg)
{
    return world_run_options(&(struct world_options){.size = size}, fn, arg);
}
