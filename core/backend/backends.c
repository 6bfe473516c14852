/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: see backends.h.
 */
#include "core/backend/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/cuda_api.h"
#include "core/backend/mpi.h"
#include "core/backend/nccl_api.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/log.h"

/* Looks for the driver, touches no GPU. */
static int staged_probe(char *ret_text, size_t size, struct err *err)
{
    const struct cuda_api *cuda;
    int rc = cuda_api_open(&cuda, err);
    if (rc == 0)
        snprintf(ret_text, size, "CUDA");
    return rc;
}

static int nccl_probe(char *ret_text, size_t size, struct err *err)
{
    const struct nccl_api *nccl;
    int rc = staged_probe(ret_text, size, err);
    if (rc == 0)
        rc = nccl_api_load(&nccl, err);
    if (rc == 0)
        snprintf(ret_text, size, "NCCL %s", nccl->text);
    return rc;
}

static const struct {
    /* Finds out whether this rank can use the back end. Local, cheap, without side effects. 0: yes;
     * ret_text is what must be the same on every rank (the library's name and version). -errno: no,
     * err says why. -ESHUTDOWN: this process can never use it again, and may not even be able to
     * reach the other ranks: hvd_init() fails at once. NULL: every rank can. */
    int (*probe)(char *ret_text, size_t size, struct err *err);
    const char *never_elastic; /* why an elastic job cannot use it; NULL: it can */
} table[BACKENDS] = {
    [BACKEND_MPI] = {mpi_probe,
                     "MPI can neither lose a rank nor take one in. Without HVD_BACKEND hvd's own "
                     "links do both"},
    [BACKEND_NCCL] = {nccl_probe, NULL},
    [BACKEND_STAGED] = {staged_probe, NULL},
};

static bool has(const struct backend_wish *wish, int backend)
{
    for (int i = 0; i < wish->n; i++)
        if (wish->list[i] == backend)
            return true;
    return false;
}

void backends_early(const struct backend_wish *wish)
{
    struct mpi_library found;
    struct err unsaid = {0};
    if (has(wish, BACKEND_MPI))
        mpi_library_load(&found, &unsaid);
}

int backends_say(const struct backends *b, bool elastic, struct buf *out, struct err *err)
{
    struct backend_said said = {.wish = b->wish};
    for (int i = 0; i < b->wish.n; i++) {
        int backend = b->wish.list[i];
        const char *name = backend_names[backend], *never = table[backend].never_elastic;
        struct err why = {0};
        if (elastic && never)
            return err_set(err, ENOTSUP, "HVD_BACKEND=%s in an elastic job: %s", name, never);
        int rc = table[backend].probe
                     ? table[backend].probe(said.of[i].text, sizeof(said.of[i].text), &why)
                     : 0;
        if (rc == -ESHUTDOWN)
            return err_set(err, ESHUTDOWN, "HVD_BACKEND=%s: %s", name, why.msg);
        /* A joiner that lacks the last back end of the list fails alone: it must not fail the ranks
         * that train. */
        if (rc < 0 && elastic && i == b->wish.n - 1)
            return err_set(err, -rc, "HVD_BACKEND=%s: %s", name, why.msg);
        said.of[i].here = rc == 0;
        if (rc < 0)
            memccpy(said.of[i].text, err_text(&why), 0, sizeof(said.of[i].text) - 1);
    }
    backend_said_put(&said, out);
    return out->failed ? err_set(err, ENOMEM, "no memory for a card") : 0;
}

int backends_hear(struct backends *b, struct buf *cards, int size, struct err *err)
{
    auto_free struct backend_said *said = calloc((size_t)size, sizeof(*said));
    if (!said)
        return err_set(err, ENOMEM, "no memory for the reports of %d ranks", size);
    for (int r = 0; r < size; r++) {
        int rc = backend_said_take(&cards[r], &said[r], err);
        if (rc < 0)
            return err_prefix(err, "rank %d", r);
    }
    return backend_choose(said, size, &b->choice, err);
}

static void say_choice(struct backends *b, const struct mesh *mesh)
{
    if (b->said || mesh->rank != 0)
        return;
    b->said = true;
    if (b->choice.note[0])
        log_warn("%s", b->choice.note);
    if (b->mpi) {
        char text[BACKEND_TEXT_MAX + 160];
        mpi_describe(b->mpi, text, sizeof(text));
        log_info("back end mpi: %s", text);
    }
}

/* Unless the user chooses otherwise, tensors of GPUs use NCCL. */
static int open_device(struct backends *b, struct err *err)
{
    bool named = has(&b->wish, BACKEND_NCCL) || has(&b->wish, BACKEND_STAGED);
    b->ways = (struct device_ways){.nccl = has(&b->choice.use, BACKEND_NCCL) || !named,
                                   .staged = has(&b->choice.use, BACKEND_STAGED)};
    int rc = env_bool("GPU_FALLBACK", false, &b->ways.fallback, err);
    return rc == 0 ? device_create(&b->ways, &b->gpu, &b->device, err) : rc;
}

static int open_all(struct backends *b, struct coll *coll, uint64_t deadline, struct err *err)
{
    int rc = has(&b->choice.use, BACKEND_MPI) ? mpi_open(coll, deadline, &b->mpi, err) : 0;
    return rc < 0 ? err_prefix(err, "HVD_BACKEND=mpi") : open_device(b, err);
}

int backends_enter(struct backends *b, struct coll *coll, bool joined, uint64_t deadline,
                   struct err *err)
{
    int rc = b->device ? 0 : open_all(b, coll, deadline, err);
    if (rc == 0 && joined)
        device_joins(b->device);
    if (rc == 0 && b->mpi)
        rc = coll_add_algorithms(coll, mpi_algorithms(b->mpi, coll->mesh), b->mpi, err);
    if (rc == 0)
        rc = coll_add_algorithms(coll, device_algorithms, b->device, err);
    if (rc == 0)
        say_choice(b, coll->mesh);
    return rc;
}

int backends_make_set_device(struct backends *b, struct device **ret, struct err *err)
{
    return device_create(&b->ways, &b->gpu, ret, err);
}

int backends_tell(const struct backends *b, const struct device *device, const char *name,
                  struct hvd_backend *ret, struct err *err)
{
    enum device_way way = device_way(device);
    int backend = backend_find(name ? name : "");
    *ret = (struct hvd_backend){.built = true, .threads = true};
    switch (backend) {
    case BACKEND_HOST:
        ret->open = b;
        return 0;
    case BACKEND_MPI:
        ret->built = mpi_library_built();
        ret->open = b && b->mpi;
        ret->threads = ret->open && b->mpi->here.multiple;
        if (ret->open)
            mpi_describe(b->mpi, ret->text, sizeof(ret->text));
        return 0;
    case BACKEND_NCCL:
    case BACKEND_STAGED:
        ret->threads = b;
        ret->open = way == (backend == BACKEND_NCCL ? DEVICE_NCCL : DEVICE_STAGED);
        if (ret->open)
            device_describe(device, ret->text, sizeof(ret->text));
        return 0;
    default:
        return err_set(err, EINVAL, "there is no back end \"%s\"", name ? name : "");
    }
}

void backends_probe(const char *name, struct hvd_backend *ret)
{
    int backend = backend_find(name ? name : "");
    struct err why = {0};
    if ((backend != BACKEND_NCCL && backend != BACKEND_STAGED) || ret->open)
        return;
    ret->built = table[backend].probe(ret->text, sizeof(ret->text), &why) == 0;
    if (!ret->built)
        memccpy(ret->text, err_text(&why), 0, sizeof(ret->text) - 1);
}

void backends_close(struct backends *b, bool lost)
{
    if (!b->abandoned)
        device_destroy(b->device);
    mpi_close(b->mpi, lost);
    b->device = NULL;
    b->mpi = NULL;
}
