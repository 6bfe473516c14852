/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm: see slurm.h. Serves tasks of srun without PMIx (boot/pmix.c serves srun --mpi=pmix). Rank
 * 0 listens on the first node of the step, at a port computed from job and step; HVD_RENDEZVOUS
 * overrides both. Slurm gives its tasks no secret. Without HVD_KEY_FILE, a step on one node meets
 * on loopback, and a step on several nodes is refused unless HVD_INSECURE=1.
 */
#include "core/boot/slurm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/env.h"
#include "core/boot/boot.h"
#include "core/boot/boot_rendezvous.h"

#define FIRST_PORT 15000
#define PORTS      17000

int slurm_first_host(const char *list, char *ret_host, size_t size)
{
    char host[256];
    size_t len = 0;
    for (const char *p = list; *p && *p != ','; p++) {
        if (*p == ']' || len + 2 > sizeof(host))
            return -EINVAL;
        if (*p != '[') {
            host[len++] = *p;
            continue;
        }
        for (p++; isdigit((unsigned char)*p) && len + 2 <= sizeof(host); p++)
            host[len++] = *p;
        p = strchr(p, ']');
        if (!p)
            return -EINVAL;
    }
    if (len == 0 || len >= size)
        return -EINVAL;
    memcpy(ret_host, host, len);
    ret_host[len] = '\0';
    return 0;
}

int slurm_port(uint32_t job, uint32_t step)
{
    return FIRST_PORT + (int)((job * 31u + step) % PORTS);
}

/* A batch script has SLURM_PROCID too, but is not a task of a step. */
static int slurm_probe(struct boot *boot, struct err *err)
{
    int64_t rank = boot_number("SLURM_PROCID"), size = boot_number("SLURM_STEP_NUM_TASKS");
    if (rank < 0 || !getenv("SLURM_STEP_ID"))
        return 0;
    if (size < 1 || size > BOOT_SIZE_MAX || rank >= size)
        return err_set(
            err, EINVAL,
            "Slurm gives task SLURM_PROCID=%s of SLURM_STEP_NUM_TASKS=%s, which is invalid",
            getenv("SLURM_PROCID"),
            getenv("SLURM_STEP_NUM_TASKS") ? getenv("SLURM_STEP_NUM_TASKS") : "(unset)");
    boot->rank = (int)rank;
    boot->size = (int)size;
    int rc = boot_rendezvous_key(boot, err);
    return rc < 0 ? rc : 1;
}

static int slurm_where(char *where, size_t size, struct err *err)
{
    char host[256] = "127.0.0.1";
    const char *list = getenv("SLURM_STEP_NODELIST");
    int64_t job = boot_number("SLURM_JOB_ID"), step = boot_number("SLURM_STEP_ID");
    if (boot_number("SLURM_STEP_NUM_NODES") != 1 &&
        (!list || slurm_first_host(list, host, sizeof(host)) < 0))
        return err_set(err, EINVAL, "no first host in SLURM_STEP_NODELIST=%s", list ? list : "");
    snprintf(where, size, "%s:%d", host, slurm_port((uint32_t)job, (uint32_t)step));
    return 0;
}

static int slurm_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                          struct err *err)
{
    char where[300];
    const char *given = env_get("RENDEZVOUS");
    if (boot->size == 1)
        return boot_alone_ops.exchange(boot, card, deadline, err);
    if (given)
        return boot_rendezvous(boot, given, "HVD_RENDEZVOUS", card, deadline, err);
    int rc = slurm_where(where, sizeof(where), err);
    return rc < 0 ? rc : boot_rendezvous(boot, where, "the Slurm step's", card, deadline, err);
}

const struct boot_ops boot_slurm_ops = {
    .name = "slurm",
    .probe = slurm_probe,
    .exchange = slurm_exchange,
};
