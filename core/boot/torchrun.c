/* SPDX-License-Identifier: Apache-2.0
 *
 * torchrun: ranks that torchrun, or another launcher of torch.distributed, has started: RANK and
 * WORLD_SIZE are set. The addresses of the other ranks are in torch's store, which only hvd's
 * Python package can read (hvd/_torchrun.py; its ranks then use source "env"). A C program needs
 * HVD_RENDEZVOUS; without it hvd_init() fails, because the rank would train alone.
 *
 * torchrun's own ranks (TORCHELASTIC_RUN_ID) are probed before PMIx and Slurm, whose variables they
 * inherit when torchrun runs under mpirun or srun. RANK and WORLD_SIZE without TORCHELASTIC_RUN_ID
 * are probed after these. RANK or WORLD_SIZE alone is ignored.
 */
#include <stdlib.h>

#include "core/base/env.h"
#include "core/boot/boot.h"
#include "core/boot/boot_rendezvous.h"

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

static int refuse(int rank, int size, struct err *err)
{
    bool master = is_set("MASTER_ADDR") && is_set("MASTER_PORT");
    return err_set(
        err, ENOTSUP,
        "RANK=%d and WORLD_SIZE=%d: %s started this rank, and %s, so it would train alone. Set "
        "HVD_RENDEZVOUS=HOST:PORT (of rank 0, a port that is free) and HVD_KEY_FILE on every rank, "
        "or start the ranks with hvdrun (to train alone: HVD_RANK=0 HVD_SIZE=1)",
        rank, size, is_set("TORCHELASTIC_RUN_ID") ? "torchrun" : "a launcher for torch.distributed",
        master
            ? "only hvd's Python package can ask it where the others are"
            : "MASTER_ADDR or MASTER_PORT, where hvd's Python package asks for the others, is not "
              "set");
}

static int probe(struct boot *boot, struct err *err)
{
    int64_t rank = boot_number("RANK"), size = boot_number("WORLD_SIZE");
    if (!is_set("RANK") || !is_set("WORLD_SIZE"))
        return 0;
    if (size < 1 || size > BOOT_SIZE_MAX || rank < 0 || rank >= size)
        return err_set(err, EINVAL,
                       "RANK=%.20s and WORLD_SIZE=%.20s are invalid together: want 0 <= RANK < "
                       "WORLD_SIZE <= %d, or neither of them",
                       getenv("RANK"), getenv("WORLD_SIZE"), BOOT_SIZE_MAX);
    if (size > 1 && !env_get("RENDEZVOUS"))
        return refuse((int)rank, (int)size, err);
    boot->rank = (int)rank;
    boot->size = (int)size;
    int rc = boot_rendezvous_key(boot, err);
    return rc < 0 ? rc : 1;
}

static int torchrun_probe(struct boot *boot, struct err *err)
{
    return is_set("TORCHELASTIC_RUN_ID") ? probe(boot, err) : 0;
}

static int torch_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                          struct err *err)
{
    if (boot->size == 1)
        return boot_alone_ops.exchange(boot, card, deadline, err);
    return boot_rendezvous(boot, env_get("RENDEZVOUS"), "HVD_RENDEZVOUS", card, deadline, err);
}

const struct boot_ops boot_torchrun_ops = {
    .name = "torchrun",
    .probe = torchrun_probe,
    .exchange = torch_exchange,
};

const struct boot_ops boot_torch_ops = {
    .name = "torch",
    .probe = probe,
    .exchange = torch_exchange,
};
