/* SPDX-License-Identifier: Apache-2.0
 *
 * deny: runs a command in which one system call fails: deny NAME EPERM|ENOSYS command... A seccomp
 * filter refuses the call, as in a sandbox, for the command and all that it starts. "deny --list"
 * prints the names of the calls.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name)                                                                                 \
    {                                                                                              \
#name, SYS_##name                                                                          \
    }

/* The calls of the doctor, its probes and their libraries. Not among them are calls without which a
 * process cannot start (execve, mmap, brk, the loader's own), and futex, whose failure makes glibc
 * abort. */
static const struct {
    const char *name;
    unsigned number;
} calls[] = {
    CALL(bind),
    CALL(clock_adjtime),
    CALL(clock_gettime),
    CALL(clock_nanosleep),
    CALL(clone),
    CALL(clone3),
    CALL(close),
    CALL(connect),
    CALL(epoll_create1),
    CALL(epoll_ctl),
    CALL(eventfd2),
    CALL(fallocate),
    CALL(fcntl),
    CALL(fstatfs),
    CALL(ftruncate),
    CALL(get_mempolicy),
    CALL(getcwd),
    CALL(getdents64),
    CALL(geteuid),
    CALL(getpid),
    CALL(getppid),
    CALL(getrandom),
    CALL(getrlimit),
    CALL(getsockname),
    CALL(getsockopt),
    CALL(gettid),
    CALL(getuid),
    CALL(io_uring_setup),
    CALL(ioctl),
    CALL(kill),
    CALL(listen),
    CALL(lseek),
    CALL(madvise),
    CALL(mbind),
    CALL(memfd_create),
    CALL(mremap),
    CALL(munmap),
    CALL(newfstatat),
    CALL(openat2),
    CALL(pidfd_open),
    CALL(pipe2),
    CALL(prctl),
    CALL(pread64),
    CALL(prlimit64),
    CALL(process_vm_readv),
    CALL(readlinkat),
    CALL(recvmsg),
    CALL(rseq),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(sched_getaffinity),
    CALL(sched_setaffinity),
    CALL(sched_yield),
    CALL(sendmsg),
    CALL(sendto),
    CALL(set_mempolicy),
    CALL(set_robust_list),
    CALL(setpgid),
    CALL(setsockopt),
    CALL(shmat),
    CALL(shmctl),
    CALL(shmdt),
    CALL(shmget),
    CALL(sigaltstack),
    CALL(socket),
    CALL(statfs),
    CALL(statx),
    CALL(sysinfo),
    CALL(syslog),
    CALL(tgkill),
    CALL(uname),
    CALL(unlinkat),
    CALL(wait4),
    CALL(waitid),
#if defined(__x86_64__)
    CALL(access),
    CALL(chmod),
    CALL(dup2),
    CALL(fork),
    CALL(mkdir),
    CALL(poll),
    CALL(readlink),
    CALL(stat),
    CALL(unlink),
    CALL(vfork),
#endif
};

#define NCALLS (sizeof(calls) / sizeof(calls[0]))

static int deny(unsigned number, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < NCALLS; i++)
            puts(calls[i].name);
        return 0;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: deny NAME EPERM|ENOSYS command...\n");
        return 2;
    }
    for (size_t i = 0; i < NCALLS; i++) {
        if (strcmp(calls[i].name, argv[1]) != 0)
            continue;
        if (deny(calls[i].number, strcmp(argv[2], "EPERM") == 0 ? EPERM : ENOSYS) < 0) {
            perror("seccomp");
            return 77;
        }
        execv(argv[3], argv + 3);
        perror(argv[3]);
        return 77;
    }
    fprintf(stderr, "deny: no call %s\n", argv[1]);
    return 2;
}
