/* SPDX-License-Identifier: Apache-2.0
 *
 * sandbox: finds out which system calls this container allows, by making them: reading
 * another process's memory (as MPI and UCX do between ranks), binding memory to a node, io_uring.
 *
 * Runs in a child of its own and leaves nothing behind. Answer "sandbox": cma mbind io_uring, each
 * 0 or the errno.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diagnostics/probe.h"

#define MPOL_PREFERRED  1
#define IO_URING_PARAMS 120 /* bytes of struct io_uring_params */

/* Reads memory of one child from another. They are siblings, as ranks are. */
static int read_sibling(pid_t pid, volatile const int *there)
{
    int value = 0, status = 0;
    pid_t reader = fork();
    if (reader < 0)
        return errno;
    if (reader == 0) {
        struct iovec to = {&value, sizeof(value)}, from = {(void *)there, sizeof(value)};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);
        _exit(n == (ssize_t)sizeof(value) ? 0 : n < 0 ? errno : EIO);
    }
    while (waitpid(reader, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : ENOSYS; /* a seccomp filter killed it */
}

static int try_cma(void)
{
    static volatile int there = 42;
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* as MPI does, for Yama */
        raise(SIGSTOP);
        _exit(0);
    }
    while (waitpid(pid, NULL, WUNTRACED) < 0 && errno == EINTR)
        ;
    int rc = read_sibling(pid, &there);
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

static int try_mbind(void)
{
    unsigned long nodes[16] = {1};
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return errno;
    long rc = syscall(SYS_mbind, page, size, MPOL_PREFERRED, nodes, sizeof(nodes) * 8, 0);
    int error = rc < 0 ? errno : 0;
    munmap(page, size);
    return error;
}

static int try_io_uring(void)
{
    unsigned char params[IO_URING_PARAMS] = {0};
    long fd = syscall(SYS_io_uring_setup, 1, params);
    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
}

static int run_sandbox(struct buf *out, const struct machine *m, const struct setting *s)
{
    answer_put(out, "cma", "%d", try_cma());
    answer_put(out, "mbind", "%d", try_mbind());
    answer_put(out, "io_uring", "%d", try_io_uring());
    return 0;
}

static const struct probe probes[] = {{.name = "sandbox", .level = 1, .run = run_sandbox}};

const struct probe_table probes_sandbox = {probes, sizeof(probes) / sizeof(probes[0])};
