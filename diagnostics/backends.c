/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: see backends.h.
 */
#include "diagnostics/backends.h"

#include <stdio.h>
#include <string.h>

#include "diagnostics/probe.h"
#include "diagnostics/setting.h"

#define ASK_MS 5000

static void copy(char *dst, size_t size, const char *text)
{
    snprintf(dst, size, "%s", text ? text : "");
}

/* The version of the copy that the loader takes: as the library reported it, else as its file
 * says. */
static const char *version_of(const struct answer *a)
{
    return answer_str_at(a, "lib", 0, "version", answer_str_at(a, "lib", 0, "text", NULL));
}

void backends_of(const struct machine *m, struct backends *ret)
{
    const struct answer *f = machine_answer(m, "framework"), *mpi = machine_answer(m, "mpi");
    memset(ret, 0, sizeof(*ret));
    copy(ret->torch, sizeof(ret->torch), answer_str_at(f, "torch", 0, "version", NULL));
    copy(ret->horovod, sizeof(ret->horovod), answer_str_at(f, "horovod", 0, "version", NULL));
    copy(ret->python, sizeof(ret->python), answer_str_at(f, "python", 0, "path", NULL));
    copy(ret->nccl, sizeof(ret->nccl), version_of(machine_answer(m, "nccl")));
    copy(ret->pmix, sizeof(ret->pmix), version_of(machine_answer(m, "pmix")));
    const char *vendor = answer_str_at(mpi, "lib", 0, "vendor", "");
    if (version_of(mpi))
        snprintf(ret->mpi, sizeof(ret->mpi), "%s %.40s",
                 strcmp(vendor, "openmpi") == 0 ? "Open MPI" : "MPI", version_of(mpi));
    copy(ret->mpi_path, sizeof(ret->mpi_path), answer_str_at(mpi, "lib", 0, "path", NULL));
}

int backends_look(struct backends *ret)
{
    static const char *const names[] = {"framework", "nccl", "mpi", "pmix"};
    struct machine m;
    struct setting s;
    struct err err = {0};
    memset(ret, 0, sizeof(*ret));
    int rc = machine_open_live(&m, &err);
    if (rc < 0)
        return rc;
    setting_guess(&s, &m);
    s.timeout_ms = ASK_MS;
    rc = probe_ask(&m, names, sizeof(names) / sizeof(*names), &s, &err);
    backends_of(&m, ret);
    machine_close(&m);
    return rc;
}

static void add(char *dst, size_t size, const char *name, const char *version)
{
    size_t at = strlen(dst);
    if (*version && at < size)
        snprintf(dst + at, size - at, "%s%s%s", at ? ", " : "", name, version);
}

void backends_text(const struct backends *b, char *dst, size_t size)
{
    dst[0] = '\0';
    add(dst, size, "PyTorch ", b->torch);
    add(dst, size, "Horovod ", b->horovod);
    add(dst, size, "NCCL ", b->nccl);
    add(dst, size, "", b->mpi);
    add(dst, size, "PMIx ", b->pmix);
    if (!*dst)
        snprintf(dst, size, "no framework, NCCL or MPI found on this machine");
}
