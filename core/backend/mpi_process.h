/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process: MPI as this process has it: started once, left at exit, and who may call it.
 *
 * MPI is of the process, not of one hvd_init(). A thread of this file starts it, makes its
 * communicators and finalizes it, so that every one of these waits has an end: who asked gives up
 * after its time, and MPI is not used any more. Where MPI lets other threads call it, one at a time
 * (MPI_THREAD_SERIALIZED or more), operations are driven by whoever drives the engine; where it
 * does not (MPI_THREAD_FUNNELED), by this thread. Between operations this thread calls MPI now and
 * then: MPI moves only when it is called, and another rank may wait for what is still here.
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
    bool direct; /* any thread may call, one at a time */
};

/* Starts MPI unless it runs; then it finalizes it at exit, where most MPIs wait for all ranks: for
 * HVD_MPI_FINALIZE_TIMEOUT seconds. HVD_MPI_THREADS=multiple|funneled asks for no more and no less.
 * -EBUSY where an earlier hvd_init() of this process has left something behind in it, see
 * mpi_process_close() and mpi_task_stop().
 * The mesh is looked at meanwhile: a rank that has given up ends the wait. It must stay until
 * mpi_process_close(): where operations are not direct, the end of each wakes who sleeps there. */
int mpi_process_enter(const struct mpi_found *found, struct mesh *mesh, uint64_t deadline,
                      struct mpi_here *ret, struct err *err);

/* As mpi_plugin.comm_create, bounded. */
int mpi_process_comm(const struct mpi_here *here, int color, int key, struct mesh *mesh,
                     uint64_t deadline, void **ret, struct err *err);

/* Its end, and that of the mesh; NULL is fine. lost: MPI would wait for a rank that is gone, so
 * nothing is done, now and at exit. So it is, too, where an operation was left behind. */
void mpi_process_close(const struct mpi_here *here, void *comm, bool lost);

/* An operation under way. step: works until it would have to wait (1), is done (0) or has failed,
 * which is logged here in MPI's words. */
struct mpi_task {
    int (*step)(void *ctx);
    void *ctx;
    _Atomic int state; /* of the funnelled one */
    bool spin;         /* of the funnelled one: for a while nobody else gets its processor */
    bool left;         /* see mpi_task_stop() */
    int rc;
};

void mpi_task_start(const struct mpi_here *here, struct mpi_task *task, int (*step)(void *),
                    void *ctx);

/* Answers as step. */
int mpi_task_progress(const struct mpi_here *here, struct mpi_task *task);

/* Before its memory goes. MPI cannot take an operation back, but has some time to end it, which it
 * does where no rank is gone: all have begun it. true: it has, and nothing of the task is touched
 * any more. false: nobody tests it any more, but what MPI was given for it, and the task, must stay
 * as they are until the process ends. A task that was never started is fine, and so is again. */
bool mpi_task_stop(const struct mpi_here *here, struct mpi_task *task);

/* Has a mpi_task_stop() left something behind? */
bool mpi_process_left(void);

#endif
