/* SPDX-License-Identifier: Apache-2.0
 *
 * pmix: ranks started by a launcher that speaks PMIx: mpirun of Open MPI 4 and 5, prterun,
 * srun --mpi=pmix.
 *
 * Opens libpmix at run time; the build needs only its header, and without the header pmix_probe()
 * refuses. Each rank puts its card, rank 0 also the job's key; after a fence each rank gets all.
 * Only processes of this job can read the launcher's store, which makes the key as secret as the
 * job. PMIx has its own thread: struct fence, which its callback uses, is reference-counted.
 */
#include "core/boot/boot.h"

#include <stdlib.h>

#include "core/boot/mpirun.h"

static bool started_us(void)
{
    return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE");
}

/* Called when libpmix cannot be used. Returns 0 if mpirun.c can serve the rank without it, else an
 * error with both texts. Some Open MPI 4 contain a private PMIx with other names; their ranks know
 * their numbers, which is enough for mpirun.c when HVD_RENDEZVOUS is set. */
static int without_pmix(const char *why, const char *cure, struct err *err)
{
    if (mpirun_will_do())
        return 0;
    return err_set(err, ENOENT,
                   "a PMIx launcher started this rank (PMIX_RANK is set), but %s. %s, or start the "
                   "ranks with %s",
                   why, cure,
                   getenv("OMPI_COMM_WORLD_SIZE")
                       ? "hvdrun, or set HVD_RENDEZVOUS=HOST:PORT, of rank 0, and HVD_KEY_FILE for "
                         "all of them"
                       : "hvdrun, or srun without --mpi=pmix");
}

#if __has_include(<pmix.h>)

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <pmix.h>

#include "core/base/clock.h"
#include "core/base/library.h"
#include "core/base/mac.h"

struct pmix {
    pmix_proc_t self;
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence_nb)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t,
                              pmix_op_cbfunc_t, void *);
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
                         pmix_value_t **);
    const char *(*error_string)(pmix_status_t);
};

/* PMIx belongs to the process, not to one hvd_init(): fences no longer wait for a process that has
 * called PMIx_Finalize. leave_pmix() calls it at exit; without it mpirun reports the exit as a
 * crash. */
static struct {
    pthread_mutex_t lock;
    struct pmix pmix;
    pid_t pid;       /* the process that called PMIx_Init; 0: none yet */
    unsigned starts; /* exchanges so far; equal on all ranks */
} g_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What a fence in flight needs. It may outlive the call that timed out waiting for it. */
struct fence {
    atomic_int owners;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
    pmix_status_t status;
    pmix_info_t collect;
};

static void fence_release(struct fence *fence)
{
    if (atomic_fetch_sub(&fence->owners, 1) > 1)
        return;
    pthread_cond_destroy(&fence->done_cond);
    pthread_mutex_destroy(&fence->lock);
    free(fence);
}

static void fence_done_cb(pmix_status_t status, void *arg)
{
    struct fence *fence = arg;
    pthread_mutex_lock(&fence->lock);
    fence->status = status;
    fence->done = true;
    pthread_cond_signal(&fence->done_cond);
    pthread_mutex_unlock(&fence->lock);
    fence_release(fence);
}

static struct fence *fence_create(void)
{
    struct fence *fence = calloc(1, sizeof(*fence));
    pthread_condattr_t attr;
    if (!fence)
        return NULL;
    atomic_init(&fence->owners, 2);
    pthread_mutex_init(&fence->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fence->done_cond, &attr);
    pthread_condattr_destroy(&attr);
    snprintf(fence->collect.key, sizeof(fence->collect.key), "%s", PMIX_COLLECT_DATA);
    fence->collect.value.type = PMIX_BOOL;
    fence->collect.value.data.flag = true;
    return fence;
}

static bool fence_wait(struct fence *fence, uint64_t deadline)
{
    uint64_t until = deadline < (uint64_t)INT64_MAX ? deadline : (uint64_t)INT64_MAX;
    const struct timespec ts = {.tv_sec = (time_t)(until / CLOCK_S),
                                .tv_nsec = (long)(until % CLOCK_S)};
    int rc = 0;
    pthread_mutex_lock(&fence->lock);
    while (!fence->done && rc == 0)
        rc = pthread_cond_timedwait(&fence->done_cond, &fence->lock, &ts);
    bool done = fence->done;
    pthread_mutex_unlock(&fence->lock);
    return done;
}

static int pmix_failed(const struct pmix *pmix, pmix_status_t status, const char *call,
                       struct err *err)
{
    return err_set(err, EIO, "%s: %s", call, pmix->error_string(status));
}

static int everybody_put(const struct pmix *pmix, uint64_t deadline, struct err *err)
{
    struct fence *fence = fence_create();
    if (!fence)
        return err_set(err, ENOMEM, "out of memory");
    pmix_status_t status = pmix->fence_nb(NULL, 0, &fence->collect, 1, fence_done_cb, fence);
    if (status != PMIX_SUCCESS) {
        fence_release(fence); /* the callback's reference: it will not be called */
        fence->done = true;
        fence->status = status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status;
    }
    int rc = 0;
    if (!fence_wait(fence, deadline))
        rc = err_set(err, ETIMEDOUT,
                     "timed out waiting in PMIx for all ranks: some have not called hvd_init()");
    else if (fence->status != PMIX_SUCCESS)
        rc = pmix_failed(pmix, fence->status, "PMIx_Fence", err);
    fence_release(fence);
    return rc;
}

/* ---- library ------------------------------------------------------------------------------- */

static int open_library(struct pmix *pmix, struct err *err)
{
    static const char *const names[] = {"libpmix.so.2", NULL};
    const struct library_symbol symbols[] = {
        {"PMIx_Init", (void **)&pmix->init},
        {"PMIx_Finalize", (void **)&pmix->finalize},
        {"PMIx_Put", (void **)&pmix->put},
        {"PMIx_Commit", (void **)&pmix->commit},
        {"PMIx_Fence_nb", (void **)&pmix->fence_nb},
        {"PMIx_Get", (void **)&pmix->get},
        {"PMIx_Error_string", (void **)&pmix->error_string},
    };
    void *handle;
    return library_open(names, symbols, sizeof(symbols) / sizeof(symbols[0]), &handle, err);
}

static int job_size(const struct pmix *pmix, int *ret, struct err *err)
{
    pmix_proc_t job = pmix->self;
    pmix_value_t *value = NULL;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_status_t status = pmix->get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (status != PMIX_SUCCESS)
        return pmix_failed(pmix, status, "PMIx_Get of the job's size", err);
    uint32_t size = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
    free(value);
    if (size < 1 || size > BOOT_SIZE_MAX || pmix->self.rank >= size)
        return err_set(err, EINVAL, "PMIx gives rank %u of %u, which is invalid", pmix->self.rank,
                       size);
    *ret = (int)size;
    return 0;
}

/* Does nothing in a forked child, whose connection to the launcher is its parent's. */
static void leave_pmix(void)
{
    if (g_process.pid == getpid())
        g_process.pmix.finalize(NULL, 0);
}

/* 1: PMIx_Init was called; 0: there is no libpmix and the rank does not need it; -errno. */
static int enter_pmix(struct err *err)
{
    struct pmix *pmix = &g_process.pmix;
    struct err why = {0};
    if (g_process.pid == getpid())
        return 1;
    if (open_library(pmix, &why) < 0)
        return without_pmix(err_text(&why), "Put libpmix.so.2 on every host (Debian: libpmix2)",
                            err);
    pmix_status_t status = pmix->init(&pmix->self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return pmix_failed(pmix, status, "PMIx_Init", err);
    g_process.pid = getpid();
    atexit(leave_pmix);
    return 1;
}

static int pmix_probe(struct boot *boot, struct err *err)
{
    struct pmix *pmix = &g_process.pmix;
    if (!started_us())
        return 0;
    pthread_mutex_lock(&g_process.lock);
    int rc = enter_pmix(err);
    pthread_mutex_unlock(&g_process.lock);
    if (rc <= 0)
        return rc;
    rc = job_size(pmix, &boot->size, err);
    if (rc < 0)
        return rc;
    boot->rank = (int)pmix->self.rank;
    boot->has_key = true;
    return 1;
}

/* ---- cards --------------------------------------------------------------------------------- */

/* PMIx cannot remove what was put: every exchange of this process uses other names. */
static void name_of(char name[64], const char *what, unsigned start)
{
    snprintf(name, 64, "hvd.%s.%u", what, start);
}

static int put_bytes(const struct pmix *pmix, const char *what, unsigned start, const void *data,
                     size_t len, struct err *err)
{
    char name[64];
    name_of(name, what, start);
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    value.data.bo.bytes = (char *)data;
    value.data.bo.size = len;
    pmix_status_t status = pmix->put(PMIX_GLOBAL, name, &value);
    return status == PMIX_SUCCESS ? 0 : pmix_failed(pmix, status, "PMIx_Put", err);
}

static int get_bytes(const struct pmix *pmix, int rank, const char *what, unsigned start,
                     size_t min, size_t max, struct buf *out, struct err *err)
{
    char name[64];
    name_of(name, what, start);
    pmix_proc_t from = pmix->self;
    pmix_value_t *value = NULL;
    from.rank = (pmix_rank_t)rank;
    pmix_status_t status = pmix->get(&from, name, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        pmix_failed(pmix, status, "PMIx_Get", err);
        return err_prefix(err, "%s of rank %d", what, rank);
    }
    int rc = 0;
    const pmix_byte_object_t *bo = &value->data.bo;
    if (value->type != PMIX_BYTE_OBJECT || bo->size < min || bo->size > max)
        rc = err_set(err, EPROTO, "the %s of rank %d in PMIx is invalid", what, rank);
    else
        buf_put(out, bo->bytes, bo->size);
    if (value->type == PMIX_BYTE_OBJECT)
        free(value->data.bo.bytes);
    free(value);
    return rc == 0 && out->failed ? err_set(err, ENOMEM, "out of memory") : rc;
}

static int get_all(struct boot *boot, const struct pmix *pmix, unsigned start, struct err *err)
{
    struct buf key = {0};
    int rc = boot_make_cards(boot, false, err);
    for (int r = 0; rc == 0 && r < boot->size; r++)
        rc = get_bytes(pmix, r, "card", start, 1, BOOT_CARD_MAX + 1, &boot->cards[r], err);
    if (rc == 0)
        rc = get_bytes(pmix, 0, "key", start, BOOT_KEY_SIZE, BOOT_KEY_SIZE, &key, err);
    if (rc == 0 && key.data)
        memcpy(boot->key, key.data, BOOT_KEY_SIZE);
    if (key.data)
        mac_wipe(key.data, key.len);
    buf_fini(&key);
    return rc;
}

static int pmix_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                         struct err *err)
{
    const struct pmix *pmix = &g_process.pmix;
    pthread_mutex_lock(&g_process.lock);
    unsigned start = g_process.starts++;
    pthread_mutex_unlock(&g_process.lock);
    /* PMIx versions treat an empty value differently: put a byte before the card. */
    struct buf out = {0};
    buf_put_u8(&out, 1);
    buf_put(&out, card->data, card->len);
    uint8_t key[BOOT_KEY_SIZE];
    mac_random(key, sizeof(key));
    int rc = out.failed ? err_set(err, ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = put_bytes(pmix, "card", start, out.data, out.len, err);
    if (rc == 0 && boot->rank == 0)
        rc = put_bytes(pmix, "key", start, key, sizeof(key), err);
    mac_wipe(key, sizeof(key));
    buf_fini(&out);
    pmix_status_t status = rc == 0 ? pmix->commit() : PMIX_SUCCESS;
    if (status != PMIX_SUCCESS)
        rc = pmix_failed(pmix, status, "PMIx_Commit", err);
    if (rc == 0)
        rc = everybody_put(pmix, deadline, err);
    if (rc == 0)
        rc = get_all(boot, pmix, start, err);
    for (int r = 0; rc == 0 && r < boot->size; r++)
        buf_consume(&boot->cards[r], 1);
    return rc;
}

#else

static int pmix_probe(struct boot *boot, struct err *err)
{
    if (!started_us())
        return 0;
    return without_pmix("hvd was built without pmix.h",
                        "Build it where pmix.h is (Debian: libpmix-dev)", err);
}

static int pmix_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                         struct err *err)
{
    return -ENOSYS;
}

#endif

const struct boot_ops boot_pmix_ops = {
    .name = "pmix",
    .probe = pmix_probe,
    .exchange = pmix_exchange,
};
