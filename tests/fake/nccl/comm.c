/* SPDX-License-Identifier: Apache-2.0
 *
 * comm: how a communicator is created, queried for errors and aborted. See fake.h.
 */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/nccl/fake.h"

#define N(name, result, arguments) EXPORT result name arguments;
NCCL_ABI_FUNCTIONS(N)
#undef N

EXPORT int fake_nccl_live(void);

static _Atomic int live;
static _Atomic(struct ncclComm *) all; /* aborted ones too: a caller may still query one */
static _Atomic(const char *) last = "said by the fake library"; /* ncclGetLastError() */

/* For tests: communicators of this process that were created and not aborted. */
int fake_nccl_live(void)
{
    return atomic_load(&live);
}

/* ---- waiting ---- */

#define YIELDS 10 /* calls of sched_yield() before naps: the other ranks need the processor */

static void nap(void)
{
    const struct timespec t = {.tv_nsec = 50000};
    nanosleep(&t, NULL);
}

static bool peer_is_dead(const struct ncclComm *c)
{
    for (int r = 0; r < c->size; r++) {
        struct pollfd p = {.fd = c->peer[r], .events = POLLIN};
        if (c->peer[r] >= 0 && poll(&p, 1, 0) == 1)
            return true;
    }
    return false;
}

bool comm_pause(struct ncclComm *comm, unsigned *tries)
{
    if (atomic_load(&comm->aborted))
        return true;
    if (++*tries < YIELDS)
        sched_yield();
    else
        nap();
    if (*tries % 16 != 0 || !comm->tells || !peer_is_dead(comm))
        return false;
    atomic_store(&comm->async, NCCL_ABI_REMOTE_ERROR);
    comm_hang(comm);
    return true;
}

void comm_hang(struct ncclComm *comm)
{
    while (!atomic_load(&comm->aborted))
        nap();
}

bool comm_barrier(struct ncclComm *comm)
{
    struct seat *seats = comm->segment->seat;
    uint64_t step = ++comm->step;
    unsigned tries = 0;
    atomic_store(&seats[comm->rank].step, step);
    for (int r = 0; r < comm->size; r++) {
        while (atomic_load(&seats[r].step) < step) {
            if (comm_pause(comm, &tries))
                return false;
        }
    }
    return true;
}

/* ---- memory of the device, if the process has a libcuda ---- */

/* False: there is no libcuda, or no memory. */
static bool device_allocate(size_t bytes, uint64_t *ret)
{
    void *symbol = stream_symbol("cuMemAlloc_v2");
    unsigned (*allocate)(uint64_t *, size_t);
    memcpy(&allocate, &symbol, sizeof(allocate));
    return allocate && allocate(ret, bytes) == 0;
}

static void device_free(uint64_t at)
{
    void *symbol = stream_symbol("cuMemFree_v2");
    unsigned (*release)(uint64_t);
    memcpy(&release, &symbol, sizeof(release));
    release(at);
}

/* ---- creation ---- */

/* One thread at a time for a communicator. It is not joined, because an abort that hangs would
 * never return. */
static void start_thread(struct ncclComm *c, void *(*fn)(void *arg))
{
    pthread_t thread;
    atomic_store(&c->busy, true);
    if (pthread_create(&thread, NULL, fn, c) == 0) {
        pthread_detach(thread);
        return;
    }
    atomic_store(&c->busy, false);
    atomic_store(&c->async, NCCL_ABI_SYSTEM_ERROR);
}

static struct ncclComm *comm_make(int rank, int size, bool blocking, const struct where *where)
{
    struct ncclComm *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->rank = rank;
    c->size = size;
    c->blocking = blocking;
    c->where = *where;
    c->tells =
        /* Read here, because threads must not read the environment. */
        script_number("FAKE_NCCL_REMOTE", 0);
    for (int r = 0; r < RANKS_MAX; r++)
        c->peer[r] = -1;
    atomic_fetch_add(&live, 1);
    c->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &c->next, c))
        ;
    return c;
}

static int compare_seats(struct ncclComm *c)
{
    const struct seat *seats = c->segment->seat;
    for (int r = 0; r < c->size; r++) {
        c->peer[r] =
            r == c->rank ? -1 : (int)syscall(SYS_pidfd_open, atomic_load(&seats[r].pid), 0);
        if (atomic_load(&seats[r].version) != atomic_load(&seats[c->rank].version))
            return NCCL_ABI_INVALID_USAGE;
        if (r != c->rank && atomic_load(&seats[r].gpu) >= 0 &&
            atomic_load(&seats[r].gpu) == atomic_load(&seats[c->rank].gpu))
            return NCCL_ABI_INVALID_USAGE;
    }
    return NCCL_ABI_SUCCESS;
}

static int join(struct ncclComm *c)
{
    unsigned tries = 0;
    c->segment = segment_open(&c->where);
    if (!c->segment)
        return NCCL_ABI_SYSTEM_ERROR;
    struct seat *seat = &c->segment->seat[c->rank];
    int version = 0;
    ncclGetVersion(&version);
    atomic_store(&seat->pid, getpid());
    atomic_store(&seat->version, version);
    atomic_store(&seat->gpu, script_number("FAKE_NCCL_GPU", -1));
    atomic_fetch_add(&c->segment->joined, 1);
    while (atomic_load(&c->segment->joined) < c->size) {
        if (comm_pause(c, &tries))
            return NCCL_ABI_INTERNAL_ERROR;
    }
    int rc = compare_seats(c);
    if (rc == NCCL_ABI_SUCCESS && !comm_barrier(c))
        rc = NCCL_ABI_INTERNAL_ERROR;
    segment_unmake(&c->where);
    return rc;
}

static void *join_thread(void *arg)
{
    struct ncclComm *c = arg;
    int rc = join(c);
    home_check(c);
    int expected = NCCL_ABI_IN_PROGRESS; /* otherwise it has failed already */
    atomic_compare_exchange_strong(&c->async, &expected, rc);
    atomic_store(&c->busy, false);
    return NULL;
}

static int init(const char *function, struct ncclComm **ret, int size, struct nccl_abi_id id,
                int rank, bool blocking)
{
    struct fault f = script_fault(function, NULL);
    struct where where;
    memcpy(&where, id.internal, sizeof(where));
    if (f.sync)
        return f.sync;
    if (size < 1 || size > RANKS_MAX || rank < 0 || rank >= size)
        return NCCL_ABI_INVALID_ARGUMENT;
    struct ncclComm *c = comm_make(rank, size, blocking, &where);
    if (!c)
        return NCCL_ABI_SYSTEM_ERROR;
    int bytes = script_number("FAKE_NCCL_MEMORY", 0);
    if (bytes > 0 && !device_allocate((size_t)bytes, &c->memory)) {
        atomic_store(&last, "Failed to CUDA calloc bytes");
        ncclCommAbort(c);
        return NCCL_ABI_CUDA_ERROR;
    }
    if (blocking) {
        int rc = f.hangs ? (comm_hang(c), NCCL_ABI_INTERNAL_ERROR) : join(c);
        if (rc != NCCL_ABI_SUCCESS)
            ncclCommAbort(c);
        *ret = rc == NCCL_ABI_SUCCESS ? c : NULL;
        return rc;
    }
    atomic_store(&c->async, f.async ? f.async : NCCL_ABI_IN_PROGRESS);
    *ret = c;
    home_begin(c);
    if (!f.async && !f.hangs)
        start_thread(c, join_thread);
    return f.async ? NCCL_ABI_IN_PROGRESS : atomic_load(&c->async);
}

int ncclCommInitRankConfig(struct ncclComm **comm, int size, struct nccl_abi_id id, int rank,
                           struct nccl_abi_config *config)
{
    if (config->magic != NCCL_ABI_MAGIC || config->size < sizeof(*config) ||
        config->version > FAKE_NCCL_BUILT)
        return NCCL_ABI_INVALID_ARGUMENT;
    return init(__func__, comm, size, id, rank, config->blocking != 0);
}

int ncclGetUniqueId(struct nccl_abi_id *id)
{
    struct fault f = script_fault(__func__, NULL);
    struct where where;
    int rc = f.sync ? f.sync : segment_make(&where);
    if (rc != NCCL_ABI_SUCCESS)
        return rc;
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, &where, sizeof(where));
    return NCCL_ABI_SUCCESS;
}

/* ---- queries and the end ---- */

int ncclCommGetAsyncError(struct ncclComm *comm, int *error)
{
    struct fault f = script_fault(__func__, comm);
    if (f.sync)
        return f.sync;
    if (!comm || atomic_load(&comm->aborted))
        return NCCL_ABI_INVALID_ARGUMENT;
    if (f.async)
        atomic_store(&comm->async, f.async);
    home_check(comm);
    if (comm->launch && atomic_load(&comm->async) == NCCL_ABI_IN_PROGRESS && time_is_due(comm)) {
        struct task *list = comm->launch;
        int expected = NCCL_ABI_IN_PROGRESS;
        comm->launch = NULL;
        int rc = group_launch(comm, list);
        /* An error of the launched work itself may be set already: it stays. */
        atomic_compare_exchange_strong(&comm->async, &expected, rc);
    }
    *error = atomic_load(&comm->async);
    return NCCL_ABI_SUCCESS;
}

/* An abort frees device memory, which waits for all work on the device, also of other
 * communicators. */
static void free_memory(struct ncclComm *c)
{
    if (c->memory || device_allocate(16, &c->memory))
        device_free(c->memory);
    c->memory = 0;
}

int ncclCommAbort(struct ncclComm *comm)
{
    struct fault f = script_fault(__func__, NULL);
    if (!comm)
        return NCCL_ABI_SUCCESS;
    if (atomic_exchange(&comm->aborted, true))
        return NCCL_ABI_INVALID_ARGUMENT;
    home_abort(comm);
    while (atomic_load(&comm->busy))
        nap();
    task_free(comm->launch);
    comm->launch = NULL;
    while (atomic_load(&comm->run) != atomic_load(&comm->queued))
        nap();
    free_memory(comm);
    for (int r = 0; r < comm->size; r++) {
        if (comm->peer[r] >= 0)
            close(comm->peer[r]);
    }
    segment_close(comm->segment);
    atomic_fetch_sub(&live, 1);
    return f.sync;
}

/* ---- texts ---- */

int ncclGetVersion(int *version)
{
    int built = FAKE_NCCL_BUILT;
    struct fault f = script_fault(__func__, NULL);
    built = script_number("FAKE_NCCL_VERSION", built);
    /* before 2.9 the major number counts thousands */
    *version =
        built >= 20900 || built < 20000 ? built : 2000 + built % 10000 / 100 * 100 + built % 100;
    return f.sync;
}

const char *ncclGetErrorString(int result)
{
    static const char *const words[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
    return result >= 0 && result < 8 ? words[result] : "unknown result code";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    return atomic_load(&last);
}
