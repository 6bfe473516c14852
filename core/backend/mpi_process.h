/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: MPI in this process: started once, finalized at exit; and which thread may call it.
 *
 * MPI belongs to the process, not to one hvd_init(). The MPI thread, which this file creates,
 * starts MPI, makes its communicators and finalizes it. So these blocking calls cannot block the
 * caller past its deadline: it gives up, and MPI is not used any more. With MPI_THREAD_SERIALIZED
 * or more, the engine's driver makes the calls of operations; with MPI_THREAD_FUNNELED the MPI
 * thread does. Between operations the MPI thread calls MPI every few milliseconds, because MPI
 * makes progress only in calls, and another rank may wait for messages that MPI still holds here.
 */
#ifndef HVD_BACKEND_MPI_PROCESS_H
#define HVD_BACKEND_MPI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/backend/mpi_load.h"
#include "core/base/err.h"
#include "core/transport/mesh.h"

struct mpi_here {
    const struct mpi_plugin *plugin;
    int rank, size; /* in MPI_COMM_WORLD */
    enum mpi_level level;
    bool direct; /* any thread may call MPI, one at a time */
};

/* Starts MPI unless it runs. If hvd started it, hvd also finalizes it at exit, where most MPIs wait
 * for all ranks: for at most HVD_MPI_FINALIZE_TIMEOUT seconds. If HVD_MPI_THREADS is set (multiple
 * or funneled), a lower level is refused. -EBUSY: an earlier hvd_init() of this process lost a
 * rank, or left an operation behind in MPI, see mpi_process_close() and mpi_task_stop(). Watches
 * the mesh meanwhile: a rank that gives up ends the wait. mesh must stay valid until
 * mpi_process_close(): unless operations are direct, the end of each wakes the threads that sleep
 * in it. */
int mpi_process_enter(const struct mpi_found *found, struct mesh *mesh, uint64_t deadline,
                      struct mpi_here *ret, struct err *err);

/* As mpi_plugin.comm_create, bounded in time. */
int mpi_process_comm(const struct mpi_here *here, int color, int key, struct mesh *mesh,
                     uint64_t deadline, void **ret, struct err *err);

/* Frees comm (NULL is allowed) and stops using the mesh. lost: a rank was lost and MPI would wait
 * for it, so nothing is done, now and at exit. The same holds if an operation was abandoned. */
void mpi_process_close(const struct mpi_here *here, void *comm, bool lost);

/* An operation in progress. step works until it would have to wait (1), has finished (0) or has
 * failed (-errno); a failure is logged with MPI's message. */
struct mpi_task {
    int (*step)(void *ctx);
    void *ctx;
    _Atomic int state; /* TASK_... of mpi_process.c; if direct, only whether it was started */
    bool spin;         /* if not direct: the thread spins for a while and keeps its processor */
    bool abandoned;    /* see mpi_task_stop() */
    int rc;
};

void mpi_task_start(const struct mpi_here *here, struct mpi_task *task, int (*step)(void *),
                    void *ctx);

/* Returns as step does. */
int mpi_task_progress(const struct mpi_here *here, struct mpi_task *task);

/* Stops a task before its memory is freed. MPI cannot cancel a collective, so this waits a while
 * for its end, which comes if no rank was lost, because all ranks have started it. true: it has
 * ended, and the task's memory is not used any more. false: the task is abandoned; it and the
 * memory that MPI was given must stay valid until the process ends. A task that was never started
 * or is stopped already is allowed. */
bool mpi_task_stop(const struct mpi_here *here, struct mpi_task *task);

/* Returns whether an mpi_task_stop() has abandoned a task. */
bool mpi_process_abandoned(void);

#endif
