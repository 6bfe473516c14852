/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic: see elastic.h.
 */
#include "tests/harness/elastic.h"

#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/rank.h"

#define READ_MS 2000

void elastic_init(struct elastic *job)
{
    memset(job, 0, sizeof(*job));
    memset(job->key, 7, sizeof(job->key));
}

static void run_member(int fd, int member, elastic_rank_f fn, void *arg, const char *const *env)
{
    static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    char text[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        signal(caught[i], SIG_DFL); /* cmocka's handlers would continue with the next test here */
    snprintf(text, sizeof(text), "%d", fd);
    setenv("HVD_AGENT_FD", text, 1);
    setenv("HVD_ELASTIC", "1", 1);
    setenv("HVD_RANK", "0", 1);
    setenv("HVD_SIZE", "64", 1);
    for (; env && *env; env++)
        putenv((char *)*env);
    int code = fn(member, arg);
    fflush(NULL);
    _exit(code);
}

int elastic_add(struct elastic *job, elastic_rank_f fn, void *arg, const char *const *env)
{
    int pair[2], member = job->n;
    struct elastic_member *m = &job->members[member];
    if (member == ELASTIC_MAX || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < job->n; i++)
            if (job->members[i].fd >= 0)
                close(job->members[i].fd);
        close(pair[0]);
        run_member(pair[1], member, fn, arg, env);
    }
    close(pair[1]);
    *m = (struct elastic_member){.pid = pid, .fd = pair[0], .rank = -1, .bye = 1};
    ctl_init(&m->ctl, m->fd);
    job->n++;
    return member;
}

/* ---- to the members ---- */

static void send_frame(struct elastic_member *m, enum ctl_type type, const struct buf *body,
                       const int *fds, size_t nfds)
{
    if (m->fd >= 0 && ctl_send(&m->ctl, type, body, fds, nfds) >= 0)
        ctl_flush(&m->ctl);
}

static void tell_lost(struct elastic *job, int member)
{
    struct buf body = {0};
    buf_put_u32(&body, (uint32_t)member);
    buf_put_u32(&body, (uint32_t)-SIGKILL);
    buf_put_str(&body, "a test killed it");
    for (int i = 0; i < job->n; i++)
        if (!job->members[i].over && i != member)
            send_frame(&job->members[i], CTL_LOST, &body, NULL, 0);
    buf_fini(&body);
}

/* Waits, at most READ_MS, until the member has read what was sent to it. */
static void await_reader(const struct elastic_member *m)
{
    uint64_t deadline = deadline_in_ms(READ_MS);
    int left = 0;
    while (ioctl(m->fd, SIOCOUTQ, &left) == 0 && left > 0 && !deadline_passed(deadline))
        nap_ms(1);
}

void elastic_announce(struct elastic *job)
{
    struct buf body = {0};
    job->change++;
    job->changing = true;
    buf_put_u32(&body, job->change);
    for (int i = 0; i < job->n; i++)
        if (job->members[i].active && !job->members[i].over)
            send_frame(&job->members[i], CTL_CHANGE, &body, NULL, 0);
    for (int i = 0; i < job->n; i++)
        if (job->members[i].active && !job->members[i].over)
            await_reader(&job->members[i]);
    buf_fini(&body);
}

static void send_roster(struct elastic *job, const int *order, int n, int to)
{
    struct buf body = {0};
    buf_put_u32(&body, job->epoch);
    buf_put_u32(&body, (uint32_t)job->members[order[to]].rank);
    buf_put_u32(&body, (uint32_t)n);
    buf_put(&body, job->key, sizeof(job->key));
    buf_put_u32(&body, job->changing ? job->change - 1 : job->change);
    buf_put_u64(&body, job->departed_done);
    for (int i = 0; i < n; i++) {
        struct elastic_member *m = &job->members[order[i]];
        buf_put_u8(&body, (uint8_t)(CTL_LOCAL | (job->keep_places ? CTL_PLACE : 0)));
        buf_put_u32(&body, (uint32_t)order[i]);
        if (job->keep_places)
            buf_put_u32(&body, (uint32_t)m->place);
        buf_put_u32(&body, (uint32_t)m->card.len);
        buf_put(&body, m->card.data, m->card.len);
    }
    send_frame(&job->members[order[to]], CTL_ROSTER, &body, NULL, 0);
    buf_fini(&body);
}

/* ---- epochs ---- */

static bool expected(const struct elastic_member *m)
{
    return m->active && !m->over && !m->left && !m->given_up;
}

/* True when every live member of the epoch waits for the next one. */
static bool all_wait(const struct elastic *job, bool *ret_boundary)
{
    bool any = false;
    *ret_boundary = true;
    for (int i = 0; i < job->n; i++) {
        const struct elastic_member *m = &job->members[i];
        if (!expected(m))
            continue;
        if (!m->waiting)
            return false;
        any = true;
        *ret_boundary = *ret_boundary && m->why == CTL_BOUNDARY;
    }
    return any;
}

static bool all_joined(const struct elastic *job)
{
    for (int i = 0; i < job->n; i++)
        if (!job->members[i].over && !job->members[i].waiting)
            return false;
    return true;
}

static void sort_by_place(const struct elastic *job, int *order, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0; k--) {
            int low = order[k - 1], high = order[k];
            if (job->members[low].place <= job->members[high].place)
                break;
            order[k - 1] = high;
            order[k] = low;
        }
}

/* Survivors, which come first in order, stay in their old order. Joiners come last, or take the
 * lowest free places. */
static void give_places(struct elastic *job, int *order, int survivors, int n)
{
    bool taken[ELASTIC_MAX] = {false};
    sort_by_place(job, order, survivors);
    for (int i = 0; i < n; i++) {
        int place = 0;
        while (taken[place])
            place++;
        if (!job->keep_places)
            place = i;
        else if (i < survivors)
            place = job->members[order[i]].place;
        job->members[order[i]].place = place;
        taken[place] = true;
    }
    sort_by_place(job, order, n);
}

static void install(struct elastic *job, const int *order, int n)
{
    job->epoch++;
    job->publishes++;
    for (int i = 0; i < job->n; i++)
        job->members[i].active = false;
    for (int i = 0; i < n; i++) {
        struct elastic_member *m = &job->members[order[i]];
        m->rank = i;
        m->active = m->was_in = true;
    }
    for (int i = 0; i < n; i++)
        send_roster(job, order, n, i);
    for (int i = 0; i < n; i++)
        job->members[order[i]].waiting = false;
}

static void let_go(struct elastic *job)
{
    struct buf text = {0};
    buf_put(&text, "scaled down", 11);
    for (int i = 0; i < job->n; i++) {
        struct elastic_member *m = &job->members[i];
        if (!m->leaving || m->over || !m->waiting)
            continue;
        m->active = m->waiting = false;
        send_frame(m, CTL_LEAVE, &text, NULL, 0);
    }
    buf_fini(&text);
}

static void publish(struct elastic *job)
{
    int order[ELASTIC_MAX], n = 0;
    bool boundary;
    if (job->epoch == 0) {
        if (!all_joined(job))
            return;
        boundary = true;
    } else if (!all_wait(job, &boundary)) {
        return;
    }
    if (boundary && job->epoch > 0) {
        let_go(job);
        job->changing = false;
    }
    int survivors = 0;
    for (int joins = 0; joins < (boundary ? 2 : 1); joins++) {
        for (int i = 0; i < job->n; i++) {
            struct elastic_member *m = &job->members[i];
            if (!m->over && !m->given_up && m->waiting && m->active == !joins)
                order[n++] = i;
        }
        survivors = joins ? survivors : n;
    }
    give_places(job, order, survivors, n);
    if (n > 0)
        install(job, order, n);
}

/* ---- from the members ---- */

static int count_active(const struct elastic *job)
{
    int n = 0;
    for (int i = 0; i < job->n; i++)
        n += expected(&job->members[i]);
    return n;
}

/* Sends provisional numbers, as if the member were admitted now. */
static void send_numbers(struct elastic *job, int member)
{
    struct buf body = {0};
    const int n = count_active(job);
    const int words[] = {(int)job->epoch, n, n + 1, member, n + 1, 0, 1};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        buf_put_u32(&body, (uint32_t)words[i]);
    send_frame(&job->members[member], CTL_NUMBERS, &body, NULL, 0);
    buf_fini(&body);
}

void elastic_dismiss(struct elastic *job, int member, const char *text)
{
    struct buf body = {0};
    buf_put(&body, text, strlen(text));
    job->members[member].waiting = job->members[member].arrived = false;
    send_frame(&job->members[member], CTL_LEAVE, &body, NULL, 0);
    buf_fini(&body);
}

static void on_hello(struct elastic *job, struct elastic_member *m, const struct ctl_frame *f)
{
    struct reader r = reader_over(f->body, f->len);
    reader_u16(&r);
    reader_u32(&r);
    m->why = reader_u8(&r);
    reader_u32(&r);
    buf_reset(&m->card);
    buf_put(&m->card, f->body + r.pos, f->len - r.pos);
    m->left = false;
    m->arrived = job->numbers && job->epoch > 0 && m->why == CTL_JOIN && !m->was_in;
    m->waiting = !m->arrived;
    if (m->arrived)
        send_numbers(job, (int)(m - job->members));
    publish(job);
}

static void on_share(struct elastic *job, struct elastic_member *from, const struct ctl_frame *f)
{
    struct buf body = {0};
    buf_put(&body, f->body, 4);
    buf_put_u32(&body, (uint32_t)from->rank);
    buf_put(&body, f->body + 8, f->len - 8);
    for (int i = 0; i < job->n; i++) {
        struct elastic_member *to = &job->members[i];
        if (to != from && to->active && !to->waiting && !to->over)
            send_frame(to, CTL_SHARE, &body, f->fds, f->nfds);
    }
    buf_fini(&body);
}

static void on_bye(struct elastic *job, struct elastic_member *m, struct reader *r)
{
    int status = (int)reader_u32(r);
    uint64_t done = reader_u64(r);
    m->left = true;
    m->bye = status;
    m->waiting = m->arrived = false;
    if (status < 0)
        tell_lost(job, (int)(m - job->members));
    job->departed_done = done > job->departed_done ? done : job->departed_done;
    publish(job);
}

static void on_frame(struct elastic *job, struct elastic_member *m, struct ctl_frame *f)
{
    struct reader r = reader_over(f->body, f->len);
    switch (f->type) {
    case CTL_HELLO:
        on_hello(job, m, f);
        break;
    case CTL_SHARE:
        on_share(job, m, f);
        break;
    case CTL_BYE:
        on_bye(job, m, &r);
        break;
    case CTL_PROGRESS:
        m->batches = reader_u64(&r);
        break;
    case CTL_SETS:
        buf_reset(&m->sets);
        buf_put(&m->sets, f->body, f->len);
        break;
    case CTL_REPAIRED:
        reader_u32(&r);
        job->repairs++;
        uint64_t ns = reader_u64(&r);
        job->slowest = ns > job->slowest ? ns : job->slowest;
        break;
    default:
        break;
    }
    for (size_t i = 0; i < f->nfds; i++)
        close(f->fds[i]);
}

static void read_frames(struct elastic *job, struct elastic_member *m)
{
    struct ctl_frame f;
    int rc = 1;
    ctl_flush(&m->ctl);
    while (m->fd >= 0 && (rc = ctl_recv(&m->ctl, &f)) == 0)
        on_frame(job, m, &f);
    if (rc < 0 && m->fd >= 0) {
        ctl_fini(&m->ctl);
        close(m->fd);
        m->fd = -1;
    }
}

static void reap(struct elastic *job)
{
    for (int i = 0; i < job->n; i++) {
        struct elastic_member *m = &job->members[i];
        if (m->over || waitpid(m->pid, &m->status, WNOHANG) != m->pid)
            continue;
        if (m->fd >= 0)
            read_frames(job, m);
        m->over = true;
        bool was_active = m->active && !m->left && !m->given_up;
        m->waiting = false;
        if (was_active && !job->late_deaths)
            tell_lost(job, i);
        publish(job);
        if (was_active && job->late_deaths)
            tell_lost(job, i);
    }
}

void elastic_give_up(struct elastic *job, int member)
{
    job->members[member].given_up = true;
    tell_lost(job, member);
    publish(job);
}

bool elastic_joiners_wait(struct elastic *job, void *arg)
{
    for (int m = *(const int *)arg; m < job->n; m++)
        if (!job->members[m].waiting)
            return false;
    return true;
}

bool elastic_all_over(struct elastic *job, void *arg)
{
    for (int i = 0; i < job->n; i++)
        if (!job->members[i].over)
            return false;
    return true;
}

bool elastic_run(struct elastic *job, bool (*done)(struct elastic *job, void *arg), void *arg,
                 int ms)
{
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    while (!done(job, arg)) {
        struct pollfd fds[ELASTIC_MAX];
        if (deadline_passed(deadline))
            return false;
        for (int i = 0; i < job->n; i++)
            fds[i] = (struct pollfd){.fd = job->members[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)job->n, 2);
        for (int i = 0; i < job->n; i++)
            if (job->members[i].fd >= 0)
                read_frames(job, &job->members[i]);
        reap(job);
    }
    return true;
}

struct step_to_come {
    const _Atomic int *at;
    int step;
};

static bool step_has_come(struct elastic *job, void *arg)
{
    const struct step_to_come *to = arg;
    (void)job;
    return atomic_load(to->at) >= to->step;
}

bool elastic_run_to(struct elastic *job, const _Atomic int *at, int step, int ms)
{
    struct step_to_come to = {at, step};
    return elastic_run(job, step_has_come, &to, ms);
}

uint32_t elastic_survivors(const struct elastic *job)
{
    uint32_t mask = 0;
    for (int i = 0; i < job->n && i < 32; i++)
        if (WIFEXITED(job->members[i].status) && WEXITSTATUS(job->members[i].status) == 0)
            mask |= 1u << i;
    return mask;
}

void elastic_fini(struct elastic *job)
{
    for (int i = 0; i < job->n; i++) {
        struct elastic_member *m = &job->members[i];
        if (!m->over) {
            kill(m->pid, SIGKILL);
            waitpid(m->pid, &m->status, 0);
        }
        if (m->fd >= 0)
            close(m->fd);
        ctl_fini(&m->ctl);
        buf_fini(&m->card);
        buf_fini(&m->sets);
    }
}
