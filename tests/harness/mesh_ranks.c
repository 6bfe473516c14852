/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh_ranks: see mesh_ranks.h.
 */
#include "tests/harness/mesh_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/ctl.h"
#include "core/base/fd.h"

enum { LIMIT_MS = 200000 };

struct parent {
    pid_t pid[MESH_RANKS_MAX];
    int pipe[MESH_RANKS_MAX];  /* parent's end of the launcher's socket pair */
    int agent[MESH_RANKS_MAX]; /* parent's end of the agent's socket pair, -1: no agent */
    struct ctl ctl[MESH_RANKS_MAX];
    uint64_t deadline;
};

/* ---- in a rank ---- */

static int swap_cards(struct boot *boot, int fd, const struct buf *card)
{
    uint64_t deadline = deadline_in_ms(LIMIT_MS);
    uint32_t len = (uint32_t)card->len;
    int rc = fd_write_full(fd, &len, sizeof(len), deadline);
    if (rc == 0)
        rc = fd_write_full(fd, card->data, card->len, deadline);
    for (int r = 0; r < boot->size && rc == 0; r++) {
        rc = fd_read_full(fd, &len, sizeof(len), deadline);
        void *dst = rc == 0 ? buf_reserve(&boot->cards[r], len) : NULL;
        rc = dst ? fd_read_full(fd, dst, len, deadline) : -ENOMEM;
        boot->cards[r].len = len;
    }
    return rc;
}

static int be_rank(struct mesh_ranks *m, int rank, int fd, int agent_fd)
{
    struct buf cards[MESH_RANKS_MAX] = {{0}}, card = {0};
    struct boot boot = {.rank = rank,
                        .size = m->n,
                        .epoch = 7,
                        .has_key = !m->no_key,
                        .agent_fd = agent_fd,
                        .cards = cards};
    struct mesh_listener *listener = NULL;
    struct mesh *mesh = NULL;
    struct err err = {0};
    memset(boot.key, 0x5a + (m->odd_key && m->odd_key == rank), sizeof(boot.key));
    if (m->hosts) {
        char word[2] = {m->hosts[rank], '\0'};
        setenv("HVD_LOCALITY", word, 1);
    }
    if (m->before)
        m->before(rank);
    int rc = mesh_listen(&boot, &listener, &card, &err);
    if (rc == 0) {
        rc = swap_cards(&boot, fd, &card);
        if (rc == 0 && m->met)
            m->met(rank);
        if (rc == 0)
            rc = mesh_create(&boot, listener,
                             deadline_in_ms(m->timeout_ms ? (uint64_t)m->timeout_ms : 60000), &mesh,
                             &err);
        else
            mesh_listener_destroy(listener);
    }
    buf_fini(&card);
    for (int r = 0; r < m->n; r++)
        buf_fini(&cards[r]);
    int code = 100;
    if (rc < 0 && m->no_mesh)
        code = m->no_mesh(rank, rc, &err);
    else if (rc < 0)
        printf("rank %d: %s\n", rank, err_text(&err));
    else
        code = m->body(mesh, m->arg);
    fflush(stdout);
    ctl_fini(&boot.ctl);
    return code;
}

/* ---- in the parent ---- */

static void spawn(struct mesh_ranks *m, struct parent *p, int rank)
{
    int launch[2], agent[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, launch) < 0 ||
        (m->agent && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, agent) < 0))
        abort();
    fflush(stdout);
    p->pid[rank] = fork();
    if (p->pid[rank] == 0) {
        /* cmocka's handlers are only for the parent. */
        static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
            signal(deadly[i], SIG_DFL);
        for (int r = 0; r < rank; r++) {
            close(p->pipe[r]);
            if (p->agent[r] >= 0)
                close(p->agent[r]);
        }
        close(launch[0]);
        if (agent[0] >= 0)
            close(agent[0]);
        int code = 0;
        for (int i = 0; i < (m->rounds ? m->rounds : 1) && code == 0; i++)
            code = be_rank(m, rank, launch[1], agent[1]);
        if (agent[1] >= 0)
            close(agent[1]);
        close(launch[1]);
        /* Not exit(), which would run the parent's handlers and flush its buffers. But leaks are
         * checked. */
        fflush(stdout);
#ifdef __SANITIZE_ADDRESS__
        extern int __lsan_do_recoverable_leak_check(void);
        if (code == 0 && __lsan_do_recoverable_leak_check())
            code = 101;
#endif
        _exit(code);
    }
    close(launch[1]);
    if (agent[1] >= 0)
        close(agent[1]);
    p->pipe[rank] = launch[0];
    p->agent[rank] = agent[0];
    if (agent[0] >= 0)
        ctl_init(&p->ctl[rank], agent[0]);
}

static bool hand_out_cards(const struct mesh_ranks *m, struct parent *p)
{
    struct buf all = {0};
    bool done = false;
    for (int r = 0; r < m->n; r++) {
        uint32_t len = 0;
        if (fd_read_full(p->pipe[r], &len, sizeof(len), p->deadline) < 0 || len > BOOT_CARD_MAX)
            break;
        buf_put(&all, &len, sizeof(len));
        void *dst = buf_reserve(&all, len);
        if (!dst || fd_read_full(p->pipe[r], dst, len, p->deadline) < 0)
            break;
        all.len += len;
        done = r == m->n - 1;
    }
    for (int r = 0; done && r < m->n; r++)
        fd_write_full(p->pipe[r], all.data, all.len, p->deadline);
    buf_fini(&all);
    return done;
}

static void tell_lost(struct mesh_ranks *m, struct parent *p, int dead)
{
    struct buf body = {0};
    char text[64];
    buf_put_u32(&body, (uint32_t)dead);
    buf_put_u32(&body, (uint32_t)m->status[dead]);
    snprintf(text, sizeof(text), "rank %d ended with status %d, says the agent", dead,
             m->status[dead]);
    buf_put(&body, text, strlen(text));
    for (int r = 0; r < m->n; r++)
        if (r != dead && p->agent[r] >= 0)
            ctl_send(&p->ctl[r], CTL_LOST, &body, NULL, 0);
    buf_fini(&body);
}

static void relay(struct mesh_ranks *m, struct parent *p, int from)
{
    struct ctl_frame f;
    int rc;
    while ((rc = ctl_recv(&p->ctl[from], &f)) == 0) {
        struct buf body = {.data = (uint8_t *)f.body, .len = f.len};
        for (int r = 0; f.type == CTL_SHARE && r < m->n; r++)
            if (r != from && p->agent[r] >= 0)
                ctl_send(&p->ctl[r], CTL_SHARE, &body, f.fds, f.nfds);
        for (size_t i = 0; i < f.nfds; i++)
            close(f.fds[i]);
    }
    if (rc < 0) {
        ctl_fini(&p->ctl[from]);
        close(p->agent[from]);
        p->agent[from] = -1;
    }
}

static int reap(struct mesh_ranks *m, struct parent *p, int rank, int flags)
{
    int status;
    if (p->pid[rank] <= 0 || waitpid(p->pid[rank], &status, flags) != p->pid[rank])
        return 0;
    p->pid[rank] = 0;
    m->status[rank] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (m->agent && WIFSIGNALED(status))
        tell_lost(m, p, rank);
    return 1;
}

void mesh_ranks_run(struct mesh_ranks *m)
{
    struct parent p = {.deadline = deadline_in_ms(LIMIT_MS)};
    int left = m->n;
    for (int r = 0; r < m->n; r++)
        spawn(m, &p, r);
    for (int i = 0; i < (m->rounds ? m->rounds : 1); i++)
        if (!hand_out_cards(m, &p))
            break;
    for (int r = 0; r < m->n; r++)
        close(p.pipe[r]);
    while (left > 0 && !deadline_passed(p.deadline)) {
        struct pollfd fds[MESH_RANKS_MAX];
        for (int r = 0; r < m->n; r++)
            fds[r] = (struct pollfd){.fd = p.agent[r], .events = POLLIN};
        poll(fds, (nfds_t)m->n, 5);
        for (int r = 0; r < m->n; r++) {
            if (p.agent[r] >= 0 && fds[r].revents)
                relay(m, &p, r);
            left -= reap(m, &p, r, WNOHANG);
        }
    }
    for (int r = 0; r < m->n; r++) {
        if (p.pid[r] > 0) {
            kill(p.pid[r], SIGKILL);
            reap(m, &p, r, 0);
            m->status[r] = -SIGALRM;
        }
        if (p.agent[r] >= 0) {
            ctl_fini(&p.ctl[r]);
            close(p.agent[r]);
        }
    }
}

void mesh_ranks_expect(const struct mesh_ranks *m, int status)
{
    for (int r = 0; r < m->n; r++)
        assert_int_equal(m->status[r], status);
}

int mesh_ranks_until(struct mesh *mesh, bool (*done)(void *arg), void *arg, int ms, int *ret_peer,
                     struct err *err)
{
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    for (;;) {
        int rc = mesh_progress(mesh, ret_peer, err);
        if (rc < 0)
            return rc;
        if (done && done(arg))
            return 0;
        if (deadline_passed(deadline))
            return 1;
        mesh_sleep_begin(mesh);
        rc = mesh_progress(mesh, ret_peer, err);
        bool over = rc < 0 || (done && done(arg));
        struct pollfd p = {.fd = mesh_fd(mesh), .events = POLLIN};
        if (!over)
            poll(&p, 1, deadline_poll_ms(deadline));
        mesh_sleep_end(mesh);
        if (over)
            return rc;
    }
}

static bool all_left(void *arg)
{
    return mesh_all_left(arg);
}

void mesh_ranks_leave(struct mesh *mesh)
{
    mesh_goodbye(mesh);
    mesh_ranks_until(mesh, all_left, mesh, 5000, NULL, NULL);
    mesh_destroy(mesh);
}
