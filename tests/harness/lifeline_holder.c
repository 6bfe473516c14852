/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "tests/harness/lifeline_holder.h"

static void *exit_at_once(void *arg)
{
    _exit(7);
}

static _Noreturn void *sleep_on(void *arg)
{
    for (;;)
        pause();
}

static void fork_and_reap(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        bool held = lifeline_is_held();
        lifeline_release(); /* must do nothing: the child holds none */
        _exit(held ? 1 : 0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        _exit(9);
}

static void do_deed(enum deed deed)
{
    pthread_t thread;
    switch (deed) {
    case SEGFAULT:
        signal(SIGSEGV, SIG_DFL); /* a sanitizer may have set a handler */
        raise(SIGSEGV);
        break;
    case EXIT:
        _exit(3);
    case EXIT_IN_THREAD:
        pthread_create(&thread, NULL, exit_at_once, NULL);
        break;
    case RELEASE:
        lifeline_release();
        break;
    case EXEC:
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(8);
    case FORK:
        fork_and_reap();
        break;
    case LEAVE_MAIN:
        pthread_create(&thread, NULL, sleep_on, NULL);
        pthread_exit(NULL);
    case NAMESPACE:
    case WAIT:
        break;
    }
}

/* Continues in a child that is process 1 of a new pid namespace; this process waits, and dies with
 * it. */
static void enter_namespace(int sock)
{
    pid_t pid = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
    if (pid < 0)
        _exit(write(sock, "n", 1) == 1 ? 14 : 15);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    for (;;)
        pause();
}

/* Waits for the lifeline's page on its end of the socket. resident: bytes of memory that it fills
 * first. */
static _Noreturn void holder_main(int sock, pid_t parent, enum deed deed, size_t resident)
{
    struct rlimit none = {0, 0};
    char byte;
    int fd;
    size_t nfds = 1;
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(13);
    if (deed == NAMESPACE)
        enter_namespace(sock);
    if (resident) {
        char *much =
            mmap(NULL, resident, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (much == MAP_FAILED)
            _exit(11);
        for (size_t i = 0; i < resident; i += 4096)
            much[i] = 1;
    }
    if (fd_recv(sock, &byte, 1, &fd, &nfds) != 1 || nfds != 1 || lifeline_hold(fd, NULL) < 0)
        _exit(10);
    close(fd);
    if (write(sock, "h", 1) != 1)
        _exit(12);
    do_deed(deed);
    for (;;)
        pause();
}

/* Forks before the watcher's thread is created: a sanitizer's locks do not survive a fork while a
 * thread is being created. */
void holder_start(struct holder *h, enum deed deed, size_t resident)
{
    int pair[2];
    pid_t parent = getpid();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0)
        holder_main(pair[1], parent, deed, resident);
    close(pair[1]);
    h->sock = pair[0];
}

char holder_give(struct holder *h)
{
    struct err err;
    char byte = 0;
    int fd;
    if (lifeline_create(&h->l, BEAT_MS, &fd, &err) < 0)
        fail_msg("%s", err.msg);
    ssize_t n = fd_send(h->sock, "l", 1, &fd, 1);
    /* A holder that cannot hold has reported that and ended. */
    assert_true(n == 1 || n == -EPIPE);
    close(fd);
    assert_int_equal(fd_read_full(h->sock, &byte, 1, deadline_in_ms(SOON_MS)), 0);
    /* The holder may be faster than the watcher's thread. */
    uint64_t until = deadline_in_ms(SOON_MS);
    while (byte == 'h' && lifeline_state(h->l) == LIFELINE_NEW && !deadline_passed(until))
        usleep(1000);
    return byte;
}

void holder_begin(struct holder *h, enum deed deed, size_t resident)
{
    holder_start(h, deed, resident);
    assert_int_equal(holder_give(h), 'h');
}

void holder_end(struct holder *h)
{
    int status;
    kill(h->pid, SIGKILL);
    waitpid(h->pid, &status, 0);
    close(h->sock);
    lifeline_destroy(h->l);
}

bool lifeline_told(const struct lifeline *l, int ms)
{
    struct pollfd p = {.fd = lifeline_event_fd(l), .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}
