/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: see backends.h. The table of back ends.
 */
#include "core/backend/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/cuda_api.h"
#include "core/backend/mpi_library.h"
#include "core/backend/nccl_api.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/log.h"

/* The host is core/coll: nothing has to be opened. */
static const struct backend_ops host_backend = {.name = "host"};

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

static const struct backend_ops nccl_backend = {
    .name = "nccl", .way = DEVICE_NCCL, .probe = nccl_probe};
static const struct backend_ops staged_backend = {
    .name = "staged", .way = DEVICE_STAGED, .probe = staged_probe};

static const struct backend_ops *const table[] = {&host_backend, &mpi_backend, &nccl_backend,
                                                  &staged_backend};
const char *const backend_names[] = {"host", "mpi", "nccl", "staged", NULL};

_Static_assert(sizeof(backend_names) / sizeof(backend_names[0]) ==
                   sizeof(table) / sizeof(table[0]) + 1,
               "a name for each of the table");
_Static_assert(sizeof(table) / sizeof(table[0]) <= BACKENDS_MAX, "BACKENDS_MAX");

void backends_early(const struct backend_wish *wish)
{
    struct mpi_library found;
    struct err unsaid = {0};
    for (int i = 0; i < wish->n; i++)
        if (table[wish->list[i]] == &mpi_backend)
            mpi_library_load(&found, &unsaid);
}

int backends_say(const struct backends *b, bool elastic, struct buf *out, struct err *err)
{
    struct backend_said said = {.wish = b->wish};
    for (int i = 0; i < b->wish.n; i++) {
        const struct backend_ops *ops = table[b->wish.list[i]];
        struct err why = {0};
        if (elastic && ops->never_elastic)
            return err_set(err, ENOTSUP, "HVD_BACKEND=%s in an elastic job: %s", ops->name,
                           ops->never_elastic);
        int rc = ops->probe ? ops->probe(said.of[i].text, sizeof(said.of[i].text), &why) : 0;
        if (rc == -ESHUTDOWN)
            return err_set(err, ESHUTDOWN, "HVD_BACKEND=%s: %s", ops->name, why.msg);
        /* A joiner that lacks the last back end of the list fails alone: it must not fail the ranks
         * that train. */
        if (rc < 0 && elastic && i == b->wish.n - 1)
            return err_set(err, -rc, "HVD_BACKEND=%s: %s", ops->name, why.msg);
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
        int rc = backend_said_take(&cards[r], backend_names, &said[r], err);
        if (rc < 0)
            return err_prefix(err, "rank %d", r);
    }
    return backend_choose(said, size, backend_names, &b->choice, err);
}

static void say_choice(struct backends *b, const struct mesh *mesh)
{
    if (b->said || mesh->rank != 0)
        return;
    b->said = true;
    if (b->choice.note[0])
        log_warn("%s", b->choice.note);
    for (int i = 0; i < b->n; i++) {
        char text[BACKEND_TEXT_MAX + 160];
        b->open[i].ops->describe(b->open[i].state, text, sizeof(text));
        log_info("back end %s: %s", b->open[i].ops->name, text);
    }
}

static int open_all(struct backends *b, struct coll *coll, uint64_t deadline, struct err *err)
{
    const struct backend_wish *use = &b->choice.use;
    for (int i = 0; i < use->n; i++) {
        const struct backend_ops *ops = table[use->list[i]];
        if (ops->way != DEVICE_NONE)
            continue;
        int rc = ops->open(coll, deadline, &b->open[b->n].state, err);
        if (rc < 0)
            return err_prefix(err, "HVD_BACKEND=%s", ops->name);
        b->open[b->n++].ops = ops;
    }
    return 0;
}

/* Unless the user chooses otherwise, tensors of GPUs use NCCL. */
static int open_device(struct backends *b, struct err *err)
{
    struct device_ways ways = {0};
    bool named = false;
    for (int i = 0; i < b->wish.n; i++)
        named = named || table[b->wish.list[i]]->way != DEVICE_NONE;
    for (int i = 0; i < b->choice.use.n; i++) {
        enum device_way way = table[b->choice.use.list[i]]->way;
        ways.nccl = ways.nccl || way == DEVICE_NCCL;
        ways.staged = ways.staged || way == DEVICE_STAGED;
    }
    ways.nccl = ways.nccl || !named;
    int rc = env_bool("GPU_FALLBACK", false, &ways.fallback, err);
    return rc == 0 ? device_create(&ways, &b->device, err) : rc;
}

int backends_enter(struct backends *b, struct coll *coll, bool joined, uint64_t deadline,
                   struct err *err)
{
    int rc = 0;
    if (!b->device) {
        rc = open_all(b, coll, deadline, err);
        if (rc == 0)
            rc = open_device(b, err);
    }
    if (rc == 0 && joined)
        device_joins(b->device);
    for (int i = 0; i < b->n && rc == 0; i++)
        rc = coll_add_algorithms(coll, b->open[i].ops->algorithms(b->open[i].state, coll->mesh),
                                 b->open[i].state, err);
    if (rc == 0)
        rc = coll_add_algorithms(coll, device_algorithms, b->device, err);
    if (rc == 0)
        say_choice(b, coll->mesh);
    return rc;
}

static const struct backend_ops *find(const char *name)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (name && strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

int backends_tell(const struct backends *b, const char *name, struct hvd_backend *ret,
                  struct err *err)
{
    const struct backend_ops *ops = find(name);
    if (!ops)
        return err_set(err, EINVAL, "there is no back end \"%s\"", name ? name : "");
    *ret = (struct hvd_backend){.built = !ops->built || ops->built(),
                                .open = b && ops == &host_backend,
                                .threads = ops == &host_backend};
    if (b && ops->way != DEVICE_NONE) {
        ret->open = device_way(b->device) == ops->way;
        ret->threads = true;
        if (ret->open)
            device_describe(b->device, ops->way, ret->text, sizeof(ret->text));
    }
    for (int i = 0; b && i < b->n; i++) {
        if (b->open[i].ops != ops)
            continue;
        ret->open = true;
        ret->threads = ops->threads && ops->threads(b->open[i].state);
        ops->describe(b->open[i].state, ret->text, sizeof(ret->text));
    }
    return 0;
}

void backends_probe(const char *name, struct hvd_backend *ret)
{
    const struct backend_ops *ops = find(name);
    struct err why = {0};
    if (!ops || ops->way == DEVICE_NONE || ret->open)
        return;
    ret->built = ops->probe(ret->text, sizeof(ret->text), &why) == 0;
    if (!ret->built)
        memccpy(ret->text, err_text(&why), 0, sizeof(ret->text) - 1);
}

void backends_close(struct backends *b, bool lost)
{
    if (!b->abandoned)
        device_destroy(b->device);
    b->device = NULL;
    while (b->n > 0) {
        b->n--;
        b->open[b->n].ops->close(b->open[b->n].state, lost);
    }
}
