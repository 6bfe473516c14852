/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: see mpi_process.h.
 */
#include "core/backend/mpi_process.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/backend/mpi_level.h"
#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/coll/reduce.h"
#include "core/transport/shm.h"

/* default wait at exit for ranks that still work, for example on a last checkpoint */
#define FINALIZE_S 3600
#define YEAR_S     31536000
#define SAY_MS     5000 /* a wait that takes longer is logged */
#define LOOK_MS    20   /* between two looks at the mesh while a caller waits for the thread */
#define CLOSE_MS   2000
#define STOP_NAPS  50000          /* naps of 100 us for which a thread in a step is waited for */
#define IDLE_NS    (5 * CLOCK_MS) /* interval between idle calls to MPI */
/* wait for the end of an operation that is given up: all ranks have started it */
#define DRAIN_MS 2000
/* spin for an operation that all ranks have started, before the thread yields */
#define SPIN_NS (10 * CLOCK_MS)

enum { TASK_NONE, TASK_RUNS, TASK_STOPS, TASK_DONE };

/* A blocking call for the thread. If the caller gives up waiting, the thread owns and frees it. */
struct errand {
    int (*run)(struct errand *);
    const struct mpi_plugin *plugin;
    enum mpi_level level; /* the level wanted, then the level that MPI provides */
    bool ours;            /* hvd has started MPI, not the program */
    int rank, size, color, key;
    uint64_t say_at; /* when a warning about the long wait is logged; 0: never, or done */
    void *comm;
    struct err err;
    bool done, forgotten;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t todo, done; /* done: on the monotonic clock */
    bool started;
    struct errand *errand;
    struct mpi_task *task;
    struct mesh *mesh;     /* of the rank that waits for tasks; NULL: MPI is not in use */
    bool spin;             /* every rank of the host has a processor */
    const char *stuck;     /* the call in which the thread was abandoned */
    pthread_mutex_t calls; /* serializes calls, also where MPI would allow concurrent ones */
    _Atomic int inside;    /* threads that are in a step */
    _Atomic int pending;   /* operations that are not done */
    _Atomic int leaving;   /* at exit: no more steps */
    bool entered, ours;
    bool lost;          /* a rank was lost or an operation abandoned: MPI is not finalized */
    bool broken;        /* a rank was lost, or an operation was abandoned in MPI */
    int64_t finalize_s; /* HVD_MPI_FINALIZE_TIMEOUT */
    pid_t pid;
    struct mpi_here here;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

/* ---- the thread ----------------------------------------------------------------------------- */

/* Runs one step and returns as the step does. If the process is ending: no step, returns 1. */
static int one_step(struct mpi_task *task)
{
    int rc = 1;
    atomic_fetch_add(&g.inside, 1);
    if (!atomic_load(&g.leaving)) {
        pthread_mutex_lock(&g.calls);
        rc = task->step(task->ctx);
        pthread_mutex_unlock(&g.calls);
    }
    atomic_fetch_sub(&g.inside, 1);
    if (rc == 0)
        atomic_fetch_sub(&g.pending, 1);
    else if (rc < 0)
        log_warn("%s", g.here.plugin->why());
    return rc;
}

static void run_task(struct mpi_task *task)
{
    int rc = 1;
    uint64_t begin = clock_ns();
    while (atomic_load(&task->state) == TASK_RUNS && (rc = one_step(task)) == 1)
        if (!task->spin || clock_ns() - begin > SPIN_NS)
            sched_yield();
    task->rc = rc;
    atomic_store(&task->state, TASK_DONE);
    pthread_mutex_lock(&g.lock);
    if (g.mesh)
        mesh_wake(g.mesh);
    pthread_mutex_unlock(&g.lock);
}

static void run_errand(struct errand *errand)
{
    errand->run(errand);
    pthread_mutex_lock(&g.lock);
    g.ours = g.ours || (errand->ours && errand->err.code == 0);
    errand->done = true;
    if (errand->forgotten) {
        g.stuck = NULL;
        free(errand);
    }
    pthread_cond_broadcast(&g.done);
    pthread_mutex_unlock(&g.lock);
}

static struct timespec in_ns(uint64_t ns)
{
    uint64_t at = clock_ns() + ns;
    return (struct timespec){.tv_sec = (time_t)(at / CLOCK_S), .tv_nsec = (long)(at % CLOCK_S)};
}

/* Called with g.lock held. Calls MPI while there is nothing to do: another rank may wait for
 * messages that this rank's MPI still holds. The lock is kept during the call, because a thread
 * that closes the mesh may finalize MPI next.
 */
static void idle(void)
{
    struct timespec until = in_ns(IDLE_NS);
    if (!g.mesh || g.lost || g.stuck) {
        pthread_cond_wait(&g.todo, &g.lock);
        return;
    }
    pthread_cond_timedwait(&g.todo, &g.lock, &until);
    if (g.errand || g.task || !g.mesh || g.lost || pthread_mutex_trylock(&g.calls) != 0)
        return;
    if (!atomic_load(&g.leaving))
        g.here.plugin->progress();
    pthread_mutex_unlock(&g.calls);
}

static void *thread_main(void *arg)
{
    fork_is_ours = true;
    pthread_mutex_lock(&g.lock);
    for (;;) {
        struct errand *errand = g.errand;
        struct mpi_task *task = g.task;
        g.errand = NULL;
        g.task = NULL;
        if (!errand && !task) {
            idle();
            continue;
        }
        pthread_mutex_unlock(&g.lock);
        if (errand)
            run_errand(errand);
        if (task)
            run_task(task);
        pthread_mutex_lock(&g.lock);
    }
    return NULL;
}

/* Called with g.lock held. */
static int start_thread(struct err *err)
{
    pthread_t thread;
    pthread_condattr_t attr;
    if (g.started && g.pid == getpid())
        return 0;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g.done, &attr);
    pthread_cond_init(&g.todo, &attr);
    pthread_condattr_destroy(&attr);
    int rc = thread_start(&thread, thread_main, NULL);
    if (rc != 0)
        return err_sys(err, rc, "a thread for MPI");
    pthread_detach(thread);
    g.started = true;
    g.pid = getpid();
    return 0;
}

/* Called with g.lock held. Waits for the errand. On 0 the caller owns it again; on an error the
 * thread does. mesh may be NULL. */
static int wait_for(struct errand *errand, const char *what, struct mesh *mesh, uint64_t deadline,
                    struct err *err)
{
    int rc = 0;
    while (!errand->done && rc == 0) {
        struct timespec until = in_ns(LOOK_MS * CLOCK_MS);
        pthread_cond_timedwait(&g.done, &g.lock, &until);
        if (errand->done)
            break;
        if (deadline_passed(deadline))
            rc = err_set(err, ETIMEDOUT, "%s has not ended in time: some ranks have not called it",
                         what);
        else if (mesh)
            rc = mesh_progress(mesh, NULL, err);
        if (rc == 0 && errand->say_at && deadline_passed(errand->say_at)) {
            log_warn("this rank is in %s, which waits for ranks that still work", what);
            errand->say_at = 0;
        }
    }
    if (rc < 0 && !errand->done) {
        errand->forgotten = true;
        g.stuck = what;
    } else {
        rc = 0;
    }
    return rc;
}

/* Has the thread run a copy of order, and waits. NULL: err says why; otherwise the caller frees the
 * result. */
static struct errand *send_errand(const struct errand *order, const char *what, struct mesh *mesh,
                                  uint64_t deadline, struct err *err)
{
    struct errand *errand = malloc(sizeof(*errand));
    if (!errand) {
        err_set(err, ENOMEM, "no memory for %s", what);
        return NULL;
    }
    *errand = *order;
    pthread_mutex_lock(&g.lock);
    int rc = g.stuck ? err_set(err, EBUSY, "MPI cannot be used any more: %s has not ended", g.stuck)
                     : start_thread(err);
    if (rc < 0) {
        free(errand);
        errand = NULL;
    } else {
        g.errand = errand;
        pthread_cond_signal(&g.todo);
        if (wait_for(errand, what, mesh, deadline, err) < 0)
            errand = NULL;
    }
    pthread_mutex_unlock(&g.lock);
    if (errand && errand->err.code < 0) {
        if (err)
            *err = errand->err;
        free(errand);
        errand = NULL;
    }
    return errand;
}

/* ---- starting ------------------------------------------------------------------------------- */

static void reduce_two(enum hvd_dtype dtype, enum hvd_op op, const void *in, void *inout, size_t n)
{
    const struct reduce_plan plan = {
        .dtype = dtype, .op = op, .prescale = 1.0, .divisor = 1, .postscale = 1.0};
    const void *src[] = {in, inout};
    reduce(&plan, inout, src, 2, n, NULL, false, false);
}

static int run_enter(struct errand *e)
{
    enum mpi_level there;
    enum mpi_state state = e->plugin->state(&there);
    int rc = 0;
    if (state == MPI_STATE_RUNS && there < MPI_LEVEL_MULTIPLE)
        return err_set(&e->err, EINVAL,
                       "this program has started MPI for fewer threads than hvd needs beside it: "
                       "call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave starting it to "
                       "hvd_init()");
    e->ours = state == MPI_STATE_NEW;
    if (e->ours)
        rc = e->plugin->init(e->level, &e->level);
    else
        e->level = there;
    if (rc == 0)
        rc = e->plugin->prepare(reduce_two, &e->rank, &e->size);
    return rc < 0 ? err_set(&e->err, -rc, "%s", e->plugin->why()) : 0;
}

/* Whether an abandoned call is still running at the deadline. */
static bool is_stuck(uint64_t deadline)
{
    pthread_mutex_lock(&g.lock);
    while (g.stuck && !deadline_passed(deadline)) {
        struct timespec until = in_ns(LOOK_MS * CLOCK_MS);
        pthread_cond_timedwait(&g.done, &g.lock, &until);
    }
    bool stuck = g.stuck != NULL;
    pthread_mutex_unlock(&g.lock);
    return stuck;
}

static int run_finalize(struct errand *e)
{
    int rc = e->plugin->finalize();
    return rc < 0 ? err_set(&e->err, -rc, "%s", e->plugin->why()) : 0;
}

/* Finalizes MPI at exit, before PMIx is finalized. If another rank exits without MPI_Finalize or is
 * lost from here on, the launcher ends the job; if it does not, the time limit ends the wait. Does
 * nothing in a forked child, because MPI belongs to its parent. */
static void leave_mpi(void)
{
    struct err err = {0};
    enum mpi_level level;
    if (g.pid != getpid() || !g.ours || g.lost)
        return;
    /* Another thread may still be in an operation: this is exit(), not hvd_shutdown(). */
    atomic_store(&g.leaving, 1);
    for (int i = 0; i < STOP_NAPS && atomic_load(&g.inside) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&g.pending) > 0)
        return; /* MPI_Finalize would wait for the pending operations */
    uint64_t deadline = deadline_in_ms((uint64_t)g.finalize_s * 1000);
    if (is_stuck(deadline))
        return;
    if (g.here.plugin->state(&level) != MPI_STATE_RUNS)
        return; /* the program has finalized MPI itself */
    const struct errand order = {
        .run = run_finalize, .plugin = g.here.plugin, .say_at = deadline_in_ms(SAY_MS)};
    free(send_errand(&order, "MPI_Finalize", NULL, deadline, &err));
    if (err.code == -ETIMEDOUT)
        log_warn("%s (HVD_MPI_FINALIZE_TIMEOUT: %lld s); this rank ends without it", err.msg,
                 (long long)g.finalize_s);
    else if (err.code < 0)
        log_warn("%s; this rank ends without it", err.msg);
}

int mpi_process_enter(const struct mpi_found *found, struct mesh *mesh, uint64_t deadline,
                      struct mpi_here *ret, struct err *err)
{
    enum mpi_level wanted;
    bool forced;
    int rc = mpi_level_wanted(&wanted, &forced, err);
    if (rc == 0)
        rc = env_int("MPI_FINALIZE_TIMEOUT", FINALIZE_S, 1, YEAR_S, &g.finalize_s, err);
    if (rc < 0)
        return rc;
    if (g.broken)
        return err_set(err, EBUSY,
                       "MPI cannot be used any more in this process: hvd has left it in the middle "
                       "of %s",
                       atomic_load(&g.pending) > 0 ? "an operation, whose memory it may still use"
                                                   : "a job");
    if (!g.entered) {
        const struct errand order = {.run = run_enter, .plugin = found->plugin, .level = wanted};
        /* Without this variable MPI_Finalize waits for all other ranks without a limit. */
        setenv("OMPI_MCA_async_mpi_finalize", "1", 0);
        struct errand *e = send_errand(&order, "MPI_Init_thread", mesh, deadline, err);
        if (!e)
            return err && err->code < 0 ? err->code : -EIO;
        g.here =
            (struct mpi_here){found->plugin, e->rank, e->size, e->level,
                              wanted == MPI_LEVEL_MULTIPLE && e->level >= MPI_LEVEL_SERIALIZED};
        g.entered = true;
        free(e);
        if (g.ours)
            atexit(leave_mpi);
    }
    pthread_mutex_lock(&g.lock);
    g.mesh = mesh;
    g.spin = mesh->shm && mesh->shm->spin;
    pthread_cond_signal(&g.todo);
    pthread_mutex_unlock(&g.lock);
    *ret = g.here;
    return mpi_level_check(ret->level, wanted, forced, err);
}

static int run_comm(struct errand *e)
{
    int rc = e->plugin->comm_create(e->color, e->key, &e->comm);
    return rc < 0 ? err_set(&e->err, -rc, "%s", e->plugin->why()) : 0;
}

int mpi_process_comm(const struct mpi_here *here, int color, int key, struct mesh *mesh,
                     uint64_t deadline, void **ret, struct err *err)
{
    const struct errand order = {
        .run = run_comm, .plugin = here->plugin, .color = color, .key = key};
    struct errand *e = send_errand(&order, "MPI_Comm_split", mesh, deadline, err);
    if (!e)
        return err && err->code < 0 ? err->code : -EIO;
    *ret = e->comm;
    free(e);
    return 0;
}

static int run_close(struct errand *e)
{
    enum mpi_level level;
    if (e->plugin->state(&level) == MPI_STATE_RUNS)
        e->plugin->comm_destroy(e->comm);
    return 0;
}

void mpi_process_close(const struct mpi_here *here, void *comm, bool lost)
{
    const struct errand order = {.run = run_close, .plugin = here->plugin, .comm = comm};
    pthread_mutex_lock(&g.lock);
    g.mesh = NULL;
    lost = lost || atomic_load(&g.pending) > 0;
    g.lost = g.lost || lost;
    g.broken = g.broken || (comm && lost);
    pthread_mutex_unlock(&g.lock);
    if (comm && !lost)
        free(send_errand(&order, "MPI_Comm_free", NULL, deadline_in_ms(CLOSE_MS), NULL));
}

/* ---- operations ----------------------------------------------------------------------------- */

void mpi_task_start(const struct mpi_here *here, struct mpi_task *task, int (*step)(void *),
                    void *ctx)
{
    task->step = step;
    task->ctx = ctx;
    task->rc = 1;
    task->abandoned = false;
    task->spin = g.spin;
    atomic_fetch_add(&g.pending, 1);
    atomic_store(&task->state, TASK_RUNS);
    if (here->direct)
        return;
    pthread_mutex_lock(&g.lock);
    g.task = task;
    pthread_mutex_unlock(&g.lock);
    /* Signals without the lock: otherwise the woken thread could preempt this one and block on the
     * lock at once. */
    pthread_cond_signal(&g.todo);
}

int mpi_task_progress(const struct mpi_here *here, struct mpi_task *task)
{
    if (here->direct)
        return task->rc = one_step(task);
    return atomic_load(&task->state) == TASK_DONE ? task->rc : 1;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Waits until the task has ended; 1: it has not ended in time. */
static int drain(const struct mpi_here *here, struct mpi_task *task)
{
    uint64_t deadline = deadline_in_ms(DRAIN_MS);
    int rc = here->direct ? task->rc : mpi_task_progress(here, task);
    while (rc == 1 && !deadline_passed(deadline)) {
        if (here->direct)
            sched_yield();
        else
            nap();
        rc = mpi_task_progress(here, task);
    }
    return rc;
}

/* Makes the thread stop testing the task. A step does not block, so this takes only a moment. */
static int leave_task(struct mpi_task *task)
{
    int runs = TASK_RUNS;
    atomic_compare_exchange_strong(&task->state, &runs, TASK_STOPS);
    for (int i = 0; i < STOP_NAPS && atomic_load(&task->state) != TASK_DONE; i++)
        nap();
    if (atomic_load(&task->state) == TASK_DONE)
        return task->rc;
    pthread_mutex_lock(&g.lock);
    g.stuck = "an operation";
    pthread_mutex_unlock(&g.lock);
    return 1;
}

bool mpi_task_stop(const struct mpi_here *here, struct mpi_task *task)
{
    if (atomic_load(&task->state) == TASK_NONE || task->abandoned)
        return !task->abandoned;
    int rc = drain(here, task);
    if (rc == 1 && !here->direct)
        rc = leave_task(task);
    task->abandoned = rc != 0;
    if (!task->abandoned)
        return true;
    /* While this holds the lock, the thread is not in idle()'s call of MPI. With g.lost set, idle()
     * never calls MPI again. */
    pthread_mutex_lock(&g.lock);
    g.lost = g.broken = true;
    pthread_mutex_unlock(&g.lock);
    log_warn("an operation of MPI that was given up has not ended well: MPI is not used any more, "
             "and keeps the memory it was given");
    return false;
}

bool mpi_process_abandoned(void)
{
    return atomic_load(&g.pending) > 0;
}
