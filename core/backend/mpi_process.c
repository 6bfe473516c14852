/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: see mpi_process.h.
 */
#include "core/backend/mpi_process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/coll/reduce.h"
#include "core/transport/shm.h"

#define FINALIZE_MS 30000 /* for ranks that are late, not lost */
#define LOOK_MS     20    /* between two looks at the mesh */
#define CLOSE_MS    2000
#define STOP_NAPS   50000           /* of 100 us */
#define SPIN_NS     (10 * CLOCK_MS) /* an operation that all ranks are in, before others may run */

enum { TASK_NONE, TASK_RUNS, TASK_STOPS, TASK_DONE };

/* Something that blocks. The thread's when who asked for it has given up. */
struct errand {
    int (*run)(struct errand *);
    const struct mpi_plugin *plugin;
    enum mpi_level level; /* wanted, then what there is */
    bool ours;            /* it was this file that started MPI */
    int rank, size, color, key;
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
    struct mesh *mesh;   /* of who waits for tasks */
    bool spin;           /* every rank of the host has a processor */
    const char *stuck;   /* in what the thread has been left */
    _Atomic int inside;  /* threads that are in a step */
    _Atomic int pending; /* operations that are not done */
    _Atomic int leaving; /* at exit: no more steps */
    bool entered, ours, lost;
    pid_t pid;
    struct mpi_here here;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .todo = PTHREAD_COND_INITIALIZER};

/* ---- the thread ----------------------------------------------------------------------------- */

/* One step, unless the process is ending. */
static int one_step(struct mpi_task *task)
{
    int rc = 1;
    atomic_fetch_add(&g.inside, 1);
    if (!atomic_load(&g.leaving))
        rc = task->step(task->ctx);
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
    errand->done = true;
    if (errand->forgotten)
        free(errand);
    pthread_cond_broadcast(&g.done);
    pthread_mutex_unlock(&g.lock);
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
            pthread_cond_wait(&g.todo, &g.lock);
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

/* (lock) */
static int start_thread(struct err *err)
{
    sigset_t all, old;
    pthread_t thread;
    pthread_condattr_t attr;
    if (g.started && g.pid == getpid())
        return 0;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g.done, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread, NULL, thread_main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_sys(err, rc, "a thread for MPI");
    pthread_detach(thread);
    g.started = true;
    g.pid = getpid();
    return 0;
}

static struct timespec soon(void)
{
    uint64_t at = clock_ns() + LOOK_MS * CLOCK_MS;
    return (struct timespec){.tv_sec = (time_t)(at / CLOCK_S), .tv_nsec = (long)(at % CLOCK_S)};
}

/* (lock) Waits for the errand; it is the caller's again if this returns 0. mesh may be NULL. */
static int wait_for(struct errand *errand, const char *what, struct mesh *mesh, uint64_t deadline,
                    struct err *err)
{
    int rc = 0;
    while (!errand->done && rc == 0) {
        struct timespec until = soon();
        pthread_cond_timedwait(&g.done, &g.lock, &until);
        if (errand->done)
            break;
        if (deadline_passed(deadline))
            rc = err_set(err, ETIMEDOUT, "%s has not ended in time: not all ranks have come to it",
                         what);
        else if (mesh)
            rc = mesh_progress(mesh, NULL, err);
    }
    if (rc < 0 && !errand->done) {
        errand->forgotten = true;
        g.stuck = what;
    } else {
        rc = 0;
    }
    return rc;
}

/* Has the thread run it. NULL: err says why; else the caller's to free. */
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

static int run_finalize(struct errand *e)
{
    int rc = e->plugin->finalize();
    return rc < 0 ? err_set(&e->err, -rc, "%s", e->plugin->why()) : 0;
}

/* At exit, before PMIx is left. Not in a forked child, whose MPI is its parent's. */
static void leave_mpi(void)
{
    struct err err = {0};
    enum mpi_level level;
    if (g.pid != getpid() || !g.ours || g.lost || g.stuck)
        return;
    /* Another thread may be at it still: this is exit(), not hvd_shutdown(). */
    atomic_store(&g.leaving, 1);
    for (int i = 0; i < STOP_NAPS && atomic_load(&g.inside) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&g.pending) > 0)
        return; /* MPI would wait for it */
    if (g.here.plugin->state(&level) != MPI_STATE_RUNS)
        return; /* the program has seen to it */
    const struct errand order = {.run = run_finalize, .plugin = g.here.plugin};
    free(send_errand(&order, "MPI_Finalize", NULL, deadline_in_ms(FINALIZE_MS), &err));
    if (err.code < 0)
        log_warn("%s; this rank ends without it", err.msg);
}

static int read_threads(enum mpi_level *ret, bool *ret_forced, struct err *err)
{
    const char *value = env_get("MPI_THREADS");
    *ret = MPI_LEVEL_MULTIPLE;
    *ret_forced = value != NULL;
    if (!value || strcasecmp(value, "multiple") == 0)
        return 0;
    if (strcasecmp(value, "funneled") != 0)
        return err_set(err, EINVAL, "HVD_MPI_THREADS=%s: want multiple or funneled", value);
    *ret = MPI_LEVEL_FUNNELED;
    return 0;
}

static int check_level(const struct mpi_here *here, enum mpi_level wanted, bool forced,
                       struct err *err)
{
    static const char *const words[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    if (here->level == MPI_LEVEL_SINGLE || (forced && here->level < wanted))
        return err_set(err, ENOTSUP, "MPI offers MPI_THREAD_%s, wanted is MPI_THREAD_%s",
                       words[here->level], words[forced ? wanted : MPI_LEVEL_FUNNELED]);
    return 0;
}

int mpi_process_enter(const struct mpi_found *found, struct mesh *mesh, uint64_t deadline,
                      struct mpi_here *ret, struct err *err)
{
    enum mpi_level wanted;
    bool forced;
    int rc = read_threads(&wanted, &forced, err);
    if (rc < 0)
        return rc;
    if (!g.entered) {
        const struct errand order = {.run = run_enter, .plugin = found->plugin, .level = wanted};
        /* Without this MPI_Finalize waits for every other rank, however long it works on alone. */
        setenv("OMPI_MCA_async_mpi_finalize", "1", 0);
        struct errand *e = send_errand(&order, "MPI_Init_thread", mesh, deadline, err);
        if (!e)
            return err && err->code < 0 ? err->code : -EIO;
        g.here =
            (struct mpi_here){found->plugin, e->rank, e->size, e->level,
                              wanted == MPI_LEVEL_MULTIPLE && e->level >= MPI_LEVEL_SERIALIZED};
        g.ours = e->ours;
        g.entered = true;
        free(e);
        if (g.ours)
            atexit(leave_mpi);
    }
    pthread_mutex_lock(&g.lock);
    g.mesh = mesh;
    g.spin = mesh->shm && mesh->shm->spin;
    pthread_mutex_unlock(&g.lock);
    *ret = g.here;
    return check_level(ret, wanted, forced, err);
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
    pthread_mutex_unlock(&g.lock);
    g.lost = g.lost || lost;
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
    task->spin = g.spin;
    atomic_fetch_add(&g.pending, 1);
    atomic_store(&task->state, TASK_RUNS);
    if (here->direct)
        return;
    pthread_mutex_lock(&g.lock);
    g.task = task;
    pthread_mutex_unlock(&g.lock);
    /* Not with the lock: where the thread gets this processor at once it would have to give it back
     * for it. */
    pthread_cond_signal(&g.todo);
}

int mpi_task_progress(const struct mpi_here *here, struct mpi_task *task)
{
    if (here->direct)
        return one_step(task);
    return atomic_load(&task->state) == TASK_DONE ? task->rc : 1;
}

void mpi_task_stop(const struct mpi_here *here, struct mpi_task *task)
{
    struct timespec nap = {.tv_nsec = 100000};
    int runs = TASK_RUNS;
    if (here->direct || !atomic_compare_exchange_strong(&task->state, &runs, TASK_STOPS))
        return;
    /* A step does not block: the thread is out of it in a moment. */
    for (int i = 0; i < STOP_NAPS && atomic_load(&task->state) != TASK_DONE; i++)
        nanosleep(&nap, NULL);
}
