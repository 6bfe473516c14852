/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: see mpi_process.h.
 */
#include "core/backend/mpi_process.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/backend/caller.h"
#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/thread.h"

/* default wait at exit for ranks that still work, for example on a last checkpoint */
#define FINALIZE_S 3600
#define YEAR_S     31536000
#define SAY_MS     5000 /* a wait at exit that takes longer is logged */
#define IDLE_MS    5    /* interval between idle calls to MPI */
/* wait for what comes if no rank was lost: the end of an operation that is given up, which all
 * ranks have started, and of MPI_Comm_free */
#define END_MS 2000

static struct {
    struct caller *caller; /* for calls that block */
    const struct mpi_plugin *plugin;
    int64_t finalize_s; /* HVD_MPI_FINALIZE_TIMEOUT */
    pid_t pid;          /* the process that uses MPI; 0: not yet */
    pthread_t idler;
    pthread_mutex_t lock;    /* held in a call that does not block */
    _Atomic bool used;       /* from enter to close: the idler runs */
    _Atomic bool left;       /* in the middle of a job, or at exit: not called any more */
    _Atomic bool unfinished; /* an operation is not done */
} g = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * (long)CLOCK_MS}, NULL);
}

/* ---- calls that block ----------------------------------------------------------------------- */

struct blocking {
    int (*run)(struct mpi_setup *);
    const char *name;
    struct mpi_setup setup;
    struct err why;
};

static int run(void *arg)
{
    struct blocking *b = arg;
    fork_is_ours = true;
    int rc = b->run(&b->setup);
    return rc < 0 ? err_set(&b->why, -rc, "%s", g.plugin->why()) : 0;
}

/* Makes a call after the earlier ones have ended. A call that has not ended at the deadline is
 * abandoned. mesh NULL: this rank is exiting, and says if that takes long. */
static int call(struct blocking *b, struct mesh *mesh, uint64_t deadline, struct err *err)
{
    uint64_t say_at = mesh ? UINT64_MAX : deadline_in_ms(SAY_MS);
    int rc = g.caller ? 0 : caller_create(&g.caller, err);
    struct call *call = rc == 0 ? call_create(run, sizeof(*b), err) : NULL;
    if (!call)
        return rc < 0 ? rc : -ENOMEM;
    *(struct blocking *)(void *)call->arg = *b;
    caller_give(g.caller, call);
    while (rc == 0 && !call_done(call)) {
        if (deadline_passed(deadline))
            rc = err_set(err, ETIMEDOUT, "%s has not ended in time: some ranks have not called it",
                         b->name);
        else if (mesh)
            rc = mesh_progress(mesh, NULL, err);
        if (deadline_passed(say_at)) {
            log_warn("this rank is in %s, which waits for ranks that still work", b->name);
            say_at = UINT64_MAX;
        }
        nap_ms(1);
    }
    if (rc == 0) {
        *b = *(struct blocking *)(void *)call->arg;
        rc = call->result;
        if (rc < 0 && err)
            *err = b->why;
    }
    call_release(call);
    return rc;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void *idle(void *arg)
{
    while (g.used) {
        nap_ms(IDLE_MS);
        pthread_mutex_lock(&g.lock);
        if (!g.left)
            g.plugin->progress();
        pthread_mutex_unlock(&g.lock);
    }
    return NULL;
}

/* From here on no thread begins a call that does not block. False: one has not ended in time. */
static bool leave(void)
{
    uint64_t deadline = deadline_in_ms(END_MS);
    g.left = true;
    while (pthread_mutex_trylock(&g.lock) != 0) {
        if (deadline_passed(deadline))
            return false;
        sched_yield();
    }
    pthread_mutex_unlock(&g.lock);
    return true;
}

/* Finalizes MPI at exit, before PMIx is finalized. If another rank exits without MPI_Finalize or is
 * lost from here on, the launcher ends the job; if it does not, the time limit ends the wait. Does
 * nothing in a forked child, because MPI belongs to its parent. MPI_Finalize would wait for an
 * operation in which another thread may still be: this is exit(), not hvd_shutdown(). */
static void at_exit(void)
{
    struct blocking b = {.run = g.plugin->leave, .name = "MPI_Finalize"};
    struct err err = {0};
    if (g.pid != getpid() || g.left || !leave() || g.unfinished)
        return;
    int rc = call(&b, NULL, deadline_in_ms((uint64_t)g.finalize_s * 1000), &err);
    if (rc < 0)
        log_warn("%s (HVD_MPI_FINALIZE_TIMEOUT: %lld s); this rank ends without it", err.msg,
                 (long long)g.finalize_s);
}

int mpi_process_enter(const struct mpi_plugin *plugin, struct mesh *mesh, uint64_t deadline,
                      struct mpi_setup *ret, struct err *err)
{
    struct blocking b = {.run = plugin->enter, .name = "MPI_Init_thread"};
    int rc = env_int("MPI_FINALIZE_TIMEOUT", FINALIZE_S, 1, YEAR_S, &g.finalize_s, err);
    if (rc < 0)
        return rc;
    if (g.left)
        return err_set(err, EBUSY,
                       "MPI cannot be used any more in this process: hvd has left it in the middle "
                       "of %s",
                       g.unfinished ? "an operation, whose memory it may still use" : "a job");
    g.plugin = plugin;
    /* Without this variable MPI_Finalize waits for all other ranks without a limit. */
    setenv("OMPI_MCA_async_mpi_finalize", "1", 0);
    rc = call(&b, mesh, deadline, err);
    if (rc < 0)
        return rc;
    if (b.setup.ours && g.pid == 0)
        atexit(at_exit);
    g.pid = getpid();
    g.used = true;
    rc = thread_start(&g.idler, idle, NULL);
    if (rc != 0) {
        g.used = false;
        return err_sys(err, rc, "a thread for MPI");
    }
    *ret = b.setup;
    return 0;
}

int mpi_process_split(int color, int key, struct mesh *mesh, uint64_t deadline, mpi_comm *ret,
                      struct err *err)
{
    struct blocking b = {g.plugin->split, "MPI_Comm_split", {.color = color, .key = key}, {0}};
    int rc = call(&b, mesh, deadline, err);
    if (rc == 0)
        *ret = b.setup.comm;
    return rc;
}

void mpi_process_close(const mpi_comm *comms, int n, bool lost)
{
    if (g.pid && (lost || g.unfinished))
        g.left = true;
    if (atomic_exchange(&g.used, false))
        pthread_join(g.idler, NULL);
    for (int i = 0; i < n && !g.left; i++) {
        struct blocking b = {g.plugin->drop, "MPI_Comm_free", {.comm = comms[i]}, {0}};
        call(&b, NULL, deadline_in_ms(END_MS), NULL);
    }
}

/* ---- operations ----------------------------------------------------------------------------- */

void mpi_task_start(struct mpi_task *task, int (*step)(void *), void *ctx)
{
    *task = (struct mpi_task){.step = step, .ctx = ctx, .rc = 1};
    g.unfinished = true;
}

int mpi_task_progress(struct mpi_task *task)
{
    if (task->rc != 1)
        return task->rc;
    pthread_mutex_lock(&g.lock);
    if (!g.left)
        task->rc = task->step(task->ctx);
    pthread_mutex_unlock(&g.lock);
    if (task->rc == 0)
        g.unfinished = false;
    else if (task->rc < 0)
        log_warn("%s", g.plugin->why());
    return task->rc;
}

bool mpi_task_stop(struct mpi_task *task)
{
    uint64_t deadline = deadline_in_ms(END_MS);
    while (!g.left && mpi_task_progress(task) == 1 && !deadline_passed(deadline))
        sched_yield();
    if (task->rc != 0 && !g.left) {
        leave();
        log_warn("an operation of MPI that was given up has not ended well: MPI is not used any "
                 "more, and keeps the memory it was given");
    }
    return task->rc == 0;
}
