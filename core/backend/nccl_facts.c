/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_facts: see nccl_facts.h.
 */
#include "core/backend/nccl_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/cuda.h"
#include "core/backend/doctor.h"
#include "core/backend/nccl_api.h"
#include "core/base/cleanup.h"
#include "core/base/fd.h"

/* ---- this rank's report ---- */

static void say_host(struct nccl_fact *f)
{
    auto_free char *boot = NULL;
    size_t len = 0;
    if (gethostname(f->name, sizeof(f->name) - 1) < 0)
        snprintf(f->name, sizeof(f->name), "a host without a name");
    /* Containers of one machine have the same boot id. */
    if (fd_read_file("/proc/sys/kernel/random/boot_id", 64, &boot, &len) < 0)
        snprintf(f->host, sizeof(f->host), "%s", f->name);
    else
        snprintf(f->host, sizeof(f->host), "%.*s", (int)strcspn(boot, "\n"), boot);
}

static void say_gpu(const struct cuda_device *d, struct nccl_fact *f)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int gpus = 0;
    if (d->api->device_count(&gpus) != CUDA_OK)
        gpus = 1; /* ours */
    f->driver = d->api->version;
    f->gpus = gpus;
    f->sm = d->sm;
    f->hides_gpus = gpus == 0 && visible && (!*visible || strcmp(visible, "-1") == 0);
    f->shares_gpu = shares && atoi(shares) != 0;
    memcpy(f->gpu, d->identity, sizeof(f->gpu));
}

void nccl_fact_fill(struct nccl_fact *fact, int rank, const struct cuda_device *device,
                    const struct nccl_api *api, const struct err *no_nccl)
{
    memset(fact, 0, sizeof(*fact)); /* sent as bytes, with its padding */
    fact->rank = rank;
    say_host(fact);
    say_gpu(device, fact);
    fact->nccl = no_nccl->code ? 0 : api->version;
    fact->cuda = no_nccl->code ? 0 : api->cuda;
    snprintf(fact->why, sizeof(fact->why), "%.399s", no_nccl->code ? no_nccl->msg : api->path);
}

/* ---- the verdict on all reports ---- */

struct facts {
    const struct nccl_fact *v;
    int n;
};

/* Writes a sentence about rank r, and returns whether it is true. */
typedef bool rule_f(const struct facts *f, int r, char *dst, size_t size);

static bool no_driver(const struct facts *f, int r, char *dst, size_t size)
{
    snprintf(dst, size, "rank %d on %s has no NVIDIA driver: start its container with GPUs",
             f->v[r].rank, f->v[r].name);
    return f->v[r].driver == 0;
}

static bool hides_gpus(const struct facts *f, int r, char *dst, size_t size)
{
    snprintf(dst, size,
             "CUDA_VISIBLE_DEVICES hides every GPU from rank %d on %s: unset it, or name a GPU",
             f->v[r].rank, f->v[r].name);
    return f->v[r].hides_gpus;
}

/* ---- GPUs of ranks ---- */

static bool has_gpu(const struct nccl_fact *fact)
{
    static const uint8_t none[sizeof(fact->gpu)];
    return memcmp(fact->gpu, none, sizeof(none)) != 0;
}

static bool same_host(const struct nccl_fact *a, const struct nccl_fact *b)
{
    return strncmp(a->host, b->host, sizeof(a->host)) == 0;
}

/* NCCL reads NCCL_MULTI_RANK_GPU_ENABLE from 2.30 on (2.30.7 does, 2.29.7 does not). Version 0, no
 * NCCL, is another rule's finding. */
static bool may_share(const struct nccl_fact *fact)
{
    return fact->shares_gpu && (fact->nccl >= 23000 || fact->nccl == 0);
}

/* Returns the first rank that uses the same GPU as rank r, where they may not; r: there is none. */
static int shares_with(const struct facts *f, int r)
{
    const struct nccl_fact *v = &f->v[r];
    for (int a = 0; a < r; a++)
        if (same_host(&f->v[a], v) && has_gpu(v) &&
            memcmp(f->v[a].gpu, v->gpu, sizeof(v->gpu)) == 0 &&
            !(may_share(&f->v[a]) && may_share(v)))
            return a;
    return r;
}

static bool no_gpu(const struct facts *f, int r, char *dst, size_t size)
{
    snprintf(dst, size, "rank %d on %s sees no GPU", f->v[r].rank, f->v[r].name);
    return !has_gpu(&f->v[r]) && f->v[r].gpus <= 0;
}

/* A process that sees a single GPU was given it on purpose and does not show how many the machine
 * has: shared_gpu() reports that. */
static bool too_few_gpus(const struct facts *f, int r, char *dst, size_t size)
{
    const struct nccl_fact *v = &f->v[r];
    bool lacks = !has_gpu(v) || (v->gpus > 1 && shares_with(f, r) != r);
    int ranks = 0;
    for (int i = 0; i < f->n && lacks; i++)
        ranks += same_host(&f->v[i], v);
    snprintf(dst, size, "%d ranks on %s, which has %d GPU%s: one rank a GPU", ranks, v->name,
             v->gpus, v->gpus == 1 ? "" : "s");
    return lacks && (!has_gpu(v) || v->gpus < ranks);
}

static bool shared_gpu(const struct facts *f, int r, char *dst, size_t size)
{
    int a = shares_with(f, r);
    snprintf(dst, size,
             "ranks %d and %d use the same GPU of %s: NCCL wants one each (take the device of "
             "hvd.local_rank(), or fewer ranks; for a test, NCCL from 2.30 on accepts it with "
             "NCCL_MULTI_RANK_GPU_ENABLE=1)",
             f->v[a].rank, f->v[r].rank, f->v[a].name);
    return a != r;
}

/* ---- versions ---- */

static bool no_nccl(const struct facts *f, int r, char *dst, size_t size)
{
    snprintf(dst, size, "rank %d on %s cannot use NCCL: %s", f->v[r].rank, f->v[r].name,
             f->v[r].why);
    return f->v[r].nccl == 0;
}

static bool mixed_nccl(const struct facts *f, int r, char *dst, size_t size)
{
    const struct nccl_fact *a = &f->v[0], *b = &f->v[r];
    char one[16], other[16];
    snprintf(dst, size,
             "rank %d on %s has NCCL %s (%s), rank %d on %s has %s (%s): one image for all ranks",
             a->rank, a->name, nccl_version_text(a->nccl, one), a->why, b->rank, b->name,
             nccl_version_text(b->nccl, other), b->why);
    return a->nccl != b->nccl;
}

static bool mixed_drivers(const struct facts *f, int r, char *dst, size_t size)
{
    const struct nccl_fact *a = &f->v[0], *b = &f->v[r];
    snprintf(dst, size,
             "the driver of rank %d on %s is for CUDA %d.%d, that of rank %d on %s for %d.%d",
             a->rank, a->name, a->driver / 1000, a->driver / 10 % 100, b->rank, b->name,
             b->driver / 1000, b->driver / 10 % 100);
    return a->driver != b->driver;
}

/* Within a major version any driver will do: NCCL brings its runtime along. */
static bool old_driver(const struct facts *f, int r, char *dst, size_t size)
{
    const struct nccl_fact *v = &f->v[r];
    char version[16];
    snprintf(dst, size,
             "NCCL %s of rank %d on %s was built for CUDA %d.%d, and the driver there is for "
             "%d.%d at most: a newer driver, or an image for an older CUDA",
             nccl_version_text(v->nccl, version), v->rank, v->name, v->cuda / 1000,
             v->cuda / 10 % 100, v->driver / 1000, v->driver / 10 % 100);
    return v->nccl != 0 && v->cuda / 1000 > v->driver / 1000;
}

/* The GPUs (compute capabilities) that NCCL's builds have code for. A newer GPU compiles that code
 * at its first start; an older one cannot use it. */
static const struct {
    int cuda; /* builds for this CUDA version or a later one, below the next row's */
    int oldest, newest;
} builds[] = {
    {11000, 60, 80},
    {11080, 60, 90},
    {12080, 60, 120},
    {13000, 75, 120},
};

/* -1: the GPU is too old, 1: it is newer than the build, 0: fits, or nothing is known. */
static int fits(const struct nccl_fact *fact)
{
    int row = -1;
    for (int i = 0; i < (int)(sizeof(builds) / sizeof(*builds)); i++) {
        if (fact->cuda >= builds[i].cuda)
            row = i;
    }
    if (row < 0 || fact->sm == 0)
        return 0;
    if (fact->sm < builds[row].oldest)
        return -1;
    /* code for 8.0 runs on 8.6 and 8.9, code for 12.0 on 12.1 */
    return fact->sm / 10 > builds[row].newest / 10;
}

static bool build_misfits(const struct facts *f, int r, const char *words, char *dst, size_t size)
{
    const struct nccl_fact *v = &f->v[r];
    char version[16];
    snprintf(dst, size, "NCCL %s of rank %d on %s was built for CUDA %d.%d and %s (sm_%d)",
             nccl_version_text(v->nccl, version), v->rank, v->name, v->cuda / 1000,
             v->cuda / 10 % 100, words, v->sm);
    return v->nccl != 0;
}

static bool gpu_too_old(const struct facts *f, int r, char *dst, size_t size)
{
    return build_misfits(f, r, "has no code for so old a GPU", dst, size) && fits(&f->v[r]) < 0;
}

static bool gpu_too_new(const struct facts *f, int r, char *dst, size_t size)
{
    return build_misfits(f, r, "is older than the GPU: it compiles at the first start, and is slow",
                         dst, size) &&
           fits(&f->v[r]) > 0;
}

/* In this order, because an earlier finding explains later ones. */
static const struct {
    rule_f *applies;
    enum nccl_verdict verdict;
    const char *doctor;
} rules[] = {
    {no_driver, NCCL_BAD, CHECK_NVML_LOAD},
    {hides_gpus, NCCL_BAD, CHECK_VISIBLE_DEVICES},
    {no_gpu, NCCL_BAD, CHECK_GPU_COUNT},
    {too_few_gpus, NCCL_BAD, CHECK_GPU_COUNT},
    {shared_gpu, NCCL_BAD, CHECK_GPU_COUNT},
    {no_nccl, NCCL_BAD, CHECK_NCCL_LOAD},
    {mixed_nccl, NCCL_BAD, CHECK_VERSION_SKEW},
    {old_driver, NCCL_BAD, CHECK_DRIVER_VERSION},
    {gpu_too_old, NCCL_BAD, CHECK_NCCL_KNOWN_BAD},
    {gpu_too_new, NCCL_WARN, CHECK_NCCL_KNOWN_BAD},
    {mixed_drivers, NCCL_WARN, CHECK_VERSION_SKEW},
};

enum nccl_verdict nccl_facts_judge(const struct nccl_fact *facts, int n, struct err *ret)
{
    const struct facts f = {facts, n};
    char line[900];
    *ret = (struct err){0};
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        int r = 0;
        while (r < n && !rules[i].applies(&f, r, line, sizeof(line)))
            r++;
        if (r == n)
            continue;
        if (strstr(line, "(doctor: ")) /* the loader's error names a check already */
            err_set(ret, ENOTSUP, "%s", line);
        else
            err_set(ret, ENOTSUP, "%s (doctor: %s)", line, rules[i].doctor);
        if (rules[i].verdict == NCCL_WARN)
            ret->code = 0;
        return rules[i].verdict;
    }
    return NCCL_GOOD;
}
