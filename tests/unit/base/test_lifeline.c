/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline: however a holder ends, its watcher is told of it, and of nothing else; whatever stands
 * in the page, the watcher can be ended. Holders are children, killed by their pid.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/lifeline.h"
#include "core/base/lifeline_page.h"

enum { BEAT_MS = 20, SOON_MS = 20000, MOMENT_MS = 200 };

/* What a holder does once it holds. */
enum deed {
    WAIT,           /* until it is killed */
    SEGFAULT,       /* signal 11 */
    EXIT,           /* exit() without a release */
    EXIT_IN_THREAD, /* _exit() by another thread than the one that has held */
    RELEASE,        /* and live on */
    EXEC,           /* another program */
    FORK,           /* a child that ends, and live on */
    LEAVE_MAIN,     /* the main thread ends, the process does not */
    NAMESPACE,      /* holds as process 1 of a pid namespace; WAIT then */
};

struct holder {
    struct lifeline *l;
    pid_t pid;
    int sock; /* reads "h" when it holds, then the end */
};

static int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

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
        lifeline_release(); /* nothing of its own */
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
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's own */
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

/* The holder is a child of this process from here on, and dies with it. */
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

/* Waits for the page on its end of the socket. resident: bytes of memory it fills before it holds.
 */
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

/* The child comes before the watcher's thread: a sanitizer's locks do not survive a fork beside a
 * thread that is just being made. */
static void start(struct holder *h, enum deed deed, size_t resident)
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

/* What the holder says: 'h', it holds; 'n', it may not have a namespace. */
static char give(struct holder *h)
{
    struct err err;
    char byte = 0;
    int fd;
    if (lifeline_create(&h->l, BEAT_MS, &fd, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(fd_send(h->sock, "l", 1, &fd, 1), 1);
    close(fd);
    assert_int_equal(fd_read_full(h->sock, &byte, 1, deadline_in_ms(SOON_MS)), 0);
    /* The holder may be quicker than the watcher's thread. */
    uint64_t until = deadline_in_ms(SOON_MS);
    while (byte == 'h' && lifeline_state(h->l) == LIFELINE_NEW && !deadline_passed(until))
        usleep(1000);
    return byte;
}

static void begin(struct holder *h, enum deed deed, size_t resident)
{
    start(h, deed, resident);
    assert_int_equal(give(h), 'h');
}

static void end(struct holder *h)
{
    int status;
    kill(h->pid, SIGKILL);
    waitpid(h->pid, &status, 0);
    close(h->sock);
    lifeline_destroy(h->l);
}

/* Does the lifeline tell the end of it within ms? */
static bool told(const struct lifeline *l, int ms)
{
    struct pollfd p = {.fd = lifeline_event_fd(l), .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static void expect(enum deed deed, int signo, enum lifeline_state state)
{
    struct holder h;
    begin(&h, deed, 0);
    if (signo)
        kill(h.pid, signo);
    assert_true(told(h.l, SOON_MS));
    assert_string_equal(lifeline_state_text(lifeline_state(h.l)), lifeline_state_text(state));
    assert_int_equal(lifeline_silence(h.l, clock_ns()), 0);
    end(&h);
}

/* ---- deaths --------------------------------------------------------------------------------- */

static void test_killed(void **state)
{
    expect(WAIT, SIGKILL, LIFELINE_DEAD);
    expect(WAIT, SIGTERM, LIFELINE_DEAD);
}

static void test_segfault(void **state)
{
    expect(SEGFAULT, 0, LIFELINE_DEAD);
}

static void test_exit(void **state)
{
    expect(EXIT, 0, LIFELINE_DEAD);
    expect(EXIT_IN_THREAD, 0, LIFELINE_DEAD);
}

static void test_exec(void **state)
{
    expect(EXEC, 0, LIFELINE_DEAD);
}

static void test_killed_while_stopped(void **state)
{
    struct holder h;
    begin(&h, WAIT, 0);
    kill(h.pid, SIGSTOP);
    assert_false(told(h.l, MOMENT_MS));
    kill(h.pid, SIGKILL);
    assert_true(told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    end(&h);
}

/* Is the death told before the process can be waited for and before its socket ends? */
static bool told_first(void)
{
    struct holder h;
    int status;
    siginfo_t info = {0};
    begin(&h, WAIT, (size_t)1 << 30);
    kill(h.pid, SIGKILL);
    bool dead = told(h.l, SOON_MS) && lifeline_state(h.l) == LIFELINE_DEAD;
    waitid(P_PID, (id_t)h.pid, &info, WEXITED | WNOHANG | WNOWAIT);
    struct pollfd socket_end = {.fd = h.sock, .events = POLLIN};
    bool first = info.si_pid == 0 && poll(&socket_end, 1, 0) == 0;
    assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
    close(h.sock);
    lifeline_destroy(h.l);
    assert_true(dead);
    return first;
}

/* While the kernel still takes its memory away. On a busy host this process may be too late to see
 * it, but not every time. */
static void test_large(void **state)
{
    bool first = false;
    for (int i = 0; i < 8 && !first; i++)
        first = told_first();
    assert_true(first);
}

static void test_many(void **state)
{
    enum { MANY = 64 };
    struct holder all[MANY];
    for (int i = 0; i < MANY; i++)
        start(&all[i], WAIT, 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(give(&all[i]), 'h');
    for (int i = 0; i < MANY; i += 2)
        kill(all[i].pid, SIGKILL);
    for (int i = 0; i < MANY; i += 2)
        assert_true(told(all[i].l, SOON_MS));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(lifeline_state(all[i].l), i % 2 ? LIFELINE_HELD : LIFELINE_DEAD);
    for (int i = 0; i < MANY; i++)
        end(&all[i]);
}

/* Numbers of processes mean nothing to it: the holder is number 1 where it is, and so are others.
 */
static void test_namespace(void **state)
{
    struct holder h;
    start(&h, NAMESPACE, 0);
    if (give(&h) == 'h') {
        assert_int_equal(lifeline_pid(h.l), 0);
        assert_false(told(h.l, MOMENT_MS));
        kill(h.pid, SIGKILL);
        assert_true(told(h.l, SOON_MS));
        assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    } else {
        printf("SKIP: base/lifeline/namespace: CAP_SYS_ADMIN: no right to make a pid namespace\n");
    }
    end(&h);
}

/* ---- no deaths ------------------------------------------------------------------------------ */

static void test_release(void **state)
{
    struct holder h;
    begin(&h, RELEASE, 0);
    assert_true(told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_RELEASED);
    end(&h);
}

static void test_fork(void **state)
{
    struct holder h;
    begin(&h, FORK, 0);
    assert_false(told(h.l, MOMENT_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    end(&h);
}

static void test_main_thread_ends(void **state)
{
    struct holder h;
    begin(&h, LEAVE_MAIN, 0);
    assert_false(told(h.l, MOMENT_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    kill(h.pid, SIGKILL);
    assert_true(told(h.l, SOON_MS));
    assert_int_equal(lifeline_state(h.l), LIFELINE_DEAD);
    end(&h);
}

/* Looks every beat until the silence is past the limit, at most SOON_MS. */
static uint64_t longest_silence(struct lifeline *l, uint64_t limit, int looks)
{
    uint64_t longest = 0;
    for (int i = 0; i < looks && longest <= limit; i++) {
        uint64_t now = lifeline_silence(l, clock_ns());
        longest = now > longest ? now : longest;
        usleep(BEAT_MS * 1000);
    }
    return longest;
}

static void test_stop_is_silence(void **state)
{
    struct holder h;
    begin(&h, WAIT, 0);
    assert_int_equal(lifeline_pid(h.l), h.pid);
    kill(h.pid, SIGSTOP);
    assert_true(longest_silence(h.l, 500 * CLOCK_MS, SOON_MS / BEAT_MS) > 500 * CLOCK_MS);
    assert_int_equal(lifeline_state(h.l), LIFELINE_HELD);
    /* one who was away himself knows nothing */
    assert_int_equal(lifeline_silence(h.l, clock_ns() + 3600 * CLOCK_S), 0);
    assert_int_equal(lifeline_silence(h.l, clock_ns() + 3600 * CLOCK_S + 250 * CLOCK_MS) > 0, true);
    kill(h.pid, SIGCONT);
    uint64_t until = deadline_in_ms(SOON_MS);
    lifeline_silence(h.l, clock_ns());
    do {
        usleep(BEAT_MS * 1000);
    } while (lifeline_silence(h.l, clock_ns()) > 0 && !deadline_passed(until));
    assert_false(deadline_passed(until));
    end(&h);
}

/* ---- the watcher's end ---------------------------------------------------------------------- */

static void test_never_held(void **state)
{
    struct lifeline *l;
    int fd, before = open_fds();
    assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
    assert_false(told(l, 50));
    assert_int_equal(lifeline_state(l), LIFELINE_NEW);
    assert_int_equal(lifeline_pid(l), 0);
    assert_int_equal(lifeline_silence(l, clock_ns()), 0);
    lifeline_destroy(l);
    close(fd);
    lifeline_destroy(NULL);
    assert_int_equal(open_fds(), before);
}

static void test_destroyed_while_held(void **state)
{
    struct holder h;
    int before = open_fds();
    for (int i = 0; i < 20; i++) {
        begin(&h, WAIT, 0);
        uint64_t from = clock_ns();
        lifeline_destroy(h.l);
        assert_true(clock_ns() - from < 10 * CLOCK_S);
        h.l = NULL;
        assert_int_equal(kill(h.pid, 0), 0);
        end(&h);
    }
    assert_int_equal(open_fds(), before);
}

static void test_arguments(void **state)
{
    struct lifeline *l = NULL;
    struct err err;
    int fd = -1, pipes[2];
    assert_int_equal(lifeline_create(&l, 9, &fd, &err), -EINVAL);
    assert_int_equal(lifeline_create(&l, 10001, &fd, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "10000"));
    assert_null(l);
    assert_int_equal(fd, -1);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(lifeline_hold(pipes[0], &err), -EPROTO);
    assert_int_equal(lifeline_hold(-1, &err), -EPROTO);
    close(pipes[0]);
    close(pipes[1]);
    fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, LIFELINE_PAGE), 0);
    assert_int_equal(lifeline_hold(fd, &err), -EPROTO); /* not sealed */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, LIFELINE_SEALS), 0);
    assert_int_equal(lifeline_hold(fd, &err), -EPROTO); /* nothing in it */
    assert_false(lifeline_is_held());
    lifeline_release();
    close(fd);
}

/* In one process: a second page takes the place of the first, and a page is held once. */
static void test_hold_again(void **state)
{
    struct lifeline *a, *b;
    int fd_a, fd_b, before = open_fds();
    assert_int_equal(lifeline_create(&a, BEAT_MS, &fd_a, NULL), 0);
    assert_int_equal(lifeline_create(&b, BEAT_MS, &fd_b, NULL), 0);
    assert_int_equal(lifeline_hold(fd_a, NULL), 0);
    assert_true(lifeline_is_held());
    assert_int_equal(lifeline_hold(fd_a, NULL), -EPROTO);
    assert_false(told(a, 20));
    assert_int_equal(lifeline_hold(fd_b, NULL), 0);
    assert_true(told(a, SOON_MS));
    assert_int_equal(lifeline_state(a), LIFELINE_RELEASED);
    assert_false(told(b, 20));
    assert_int_equal(lifeline_state(b), LIFELINE_HELD);
    lifeline_release();
    assert_false(lifeline_is_held());
    assert_true(told(b, SOON_MS));
    lifeline_destroy(a);
    lifeline_destroy(b);
    close(fd_a);
    close(fd_b);
    assert_int_equal(open_fds(), before);
}

/* ---- turns of the processor ------------------------------------------------------------------ */

/* As struct sched_attr begins: nice at 16, runtime at 24. */
static uint64_t turn_of_self(void)
{
    uint64_t attr[6] = {0};
    return syscall(SYS_sched_getattr, 0, attr, sizeof(attr), 0) < 0 ? 0 : attr[3];
}

/* What it changes is its own turn: not how nice it is, and not what its children get. */
static void test_hurry(void **state)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t before = turn_of_self();
        setpriority(PRIO_PROCESS, 0, 7);
        lifeline_hurry();
        if (getpriority(PRIO_PROCESS, 0) != 7 || turn_of_self() > before)
            _exit(1);
        pid = fork();
        if (pid == 0)
            _exit(turn_of_self() == before && getpriority(PRIO_PROCESS, 0) == 7 ? 0 : 1);
        _exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- a holder that writes what it likes ------------------------------------------------------ */

static struct lifeline_page *map_of(int fd)
{
    void *p = mmap(NULL, LIFELINE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void write_word(struct lifeline_page *page, uint32_t word)
{
    atomic_store(&page->word, word);
    lifeline_futex_wake(&page->word);
}

static void test_words(void **state)
{
    const uint32_t tid = FUTEX_WAITERS | 4711;
    const struct {
        uint32_t first, second;
        enum lifeline_state state;
    } rows[] = {
        {tid, FUTEX_WAITERS | FUTEX_OWNER_DIED, LIFELINE_DEAD},
        {tid, FUTEX_OWNER_DIED, LIFELINE_DEAD},
        {tid, LIFELINE_WORD_RELEASED, LIFELINE_RELEASED},
        {tid, 0, LIFELINE_BROKEN},
        {tid, tid + 1, LIFELINE_BROKEN},
        {tid, tid & ~FUTEX_WAITERS, LIFELINE_BROKEN},
        {0, 4711, LIFELINE_BROKEN}, /* the kernel would wake nobody */
        {0, FUTEX_WAITERS, LIFELINE_BROKEN},
        {0, LIFELINE_WORD_RELEASED, LIFELINE_RELEASED},
        {0, FUTEX_WAITERS | FUTEX_OWNER_DIED, LIFELINE_DEAD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lifeline *l;
        int fd;
        assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
        struct lifeline_page *page = map_of(fd);
        write_word(page, rows[i].first);
        assert_false(told(l, 20));
        write_word(page, rows[i].second);
        assert_true(told(l, SOON_MS));
        assert_int_equal(lifeline_state(l), rows[i].state);
        munmap(page, LIFELINE_PAGE);
        close(fd);
        lifeline_destroy(l);
    }
}

static void *scribble(void *arg)
{
    struct lifeline_page *page = arg;
    unsigned seed = 1;
    while (!atomic_load(&page->pidns)) {
        atomic_store(&page->beats, (uint64_t)rand_r(&seed) << 33);
        atomic_store(&page->pid, (uint32_t)rand_r(&seed) * 2);
        write_word(page,
                   (uint32_t)rand_r(&seed) % 8 ? FUTEX_WAITERS | 4711 : (uint32_t)rand_r(&seed));
    }
    return NULL;
}

/* Garbage all the while: the watcher says something, silence stays a number, and it can be ended.
 */
static void test_garbage(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct lifeline *l;
        pthread_t thread;
        int fd;
        assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
        struct lifeline_page *page = map_of(fd);
        pthread_create(&thread, NULL, scribble, page);
        for (int n = 0; n < 20; n++) {
            lifeline_silence(l, clock_ns());
            assert_true(lifeline_pid(l) >= 0);
            assert_true(lifeline_state(l) <= LIFELINE_BROKEN);
        }
        lifeline_destroy(l);
        atomic_store(&page->pidns, 1);
        pthread_join(thread, NULL);
        munmap(page, LIFELINE_PAGE);
        close(fd);
    }
}

/* The page is punched out from under a watcher that waits on it: it reads 0, and cannot shrink. */
static void test_hole(void **state)
{
    struct lifeline *l;
    int fd;
    assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
    struct lifeline_page *page = map_of(fd);
    write_word(page, FUTEX_WAITERS | 4711);
    assert_false(told(l, 20));
    assert_true(ftruncate(fd, 0) < 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LIFELINE_PAGE),
                     0);
    lifeline_silence(l, clock_ns());
    lifeline_destroy(l);
    munmap(page, LIFELINE_PAGE);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_segfault),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_killed_while_stopped),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_namespace),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_main_thread_ends),
        cmocka_unit_test(test_stop_is_silence),
        cmocka_unit_test(test_never_held),
        cmocka_unit_test(test_destroyed_while_held),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_hold_again),
        cmocka_unit_test(test_hurry),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
