/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: MPI in this process: started once, finalized at exit; and who calls it when.
 *
 * MPI belongs to the process, not to one hvd_init(). A thread (caller.h) starts MPI, makes its
 * communicators and finalizes it: these calls block, but the caller only until its deadline. The
 * engine's driver makes the calls of operations. Between operations another thread calls MPI every
 * few milliseconds, because MPI makes progress only in calls, and another rank may wait for
 * messages that MPI still holds here. Under the progress lock.
 */
#ifndef HVD_BACKEND_MPI_PROCESS_H
#define HVD_BACKEND_MPI_PROCESS_H

#include "core/backend/mpi_plugin.h"
#include "core/base/err.h"
#include "core/transport/mesh.h"

/* Starts MPI unless it runs. If hvd started it, hvd also finalizes it at exit, where most MPIs wait
 * for all ranks: for at most HVD_MPI_FINALIZE_TIMEOUT seconds. -EBUSY: an earlier hvd_init() of
 * this process lost a rank, or left an operation behind in MPI, see mpi_process_close() and
 * mpi_task_stop(). Watches the mesh meanwhile: a rank that gives up ends the wait. */
int mpi_process_enter(const struct mpi_plugin *plugin, struct mesh *mesh, uint64_t deadline,
                      struct mpi_setup *ret, struct err *err);

/* As mpi_plugin.split, bounded in time. */
int mpi_process_split(int color, int key, struct mesh *mesh, uint64_t deadline, mpi_comm *ret,
                      struct err *err);

/* Frees communicators. lost: a rank was lost and MPI would wait for it, so nothing is done, now and
 * at exit, and MPI is not used again. The same holds if an operation was abandoned. */
void mpi_process_close(const mpi_comm *comms, int n, bool lost);

/* An operation. step works until it would have to wait (1), has finished (0) or has failed
 * (-errno); a failure is logged with MPI's message. */
struct mpi_task {
    int (*step)(void *ctx);
    void *ctx;
    int rc; /* what the last step returned; 0: not started */
};

void mpi_task_start(struct mpi_task *task, int (*step)(void *), void *ctx);

/* Returns as step does. */
int mpi_task_progress(struct mpi_task *task);

/* Stops a task before its memory is freed. MPI cannot cancel a collective, so this waits a while
 * for its end, which comes if no rank was lost, because all ranks have started it. true: it has
 * ended, and the task's memory is not used any more. false: the task is abandoned; it and the
 * memory that MPI was given must stay valid until the process ends. A task that was never started
 * or is stopped already is allowed. */
bool mpi_task_stop(struct mpi_task *task);

#endif
