/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun: see mpirun.h.
 */
#include "core/boot/mpirun.h"

#include <stdlib.h>

#include "core/base/env.h"
#include "core/boot/boot.h"
#include "core/boot/boot_rendezvous.h"

/* The variables that tell the number of ranks and this rank's number. */
struct numbers {
    const char *rank, *size;
    bool slurm_too; /* srun --mpi=pmi2 sets both, too; slurm.c then serves the rank better */
};

static const struct numbers open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false};
static const struct numbers hydra = {"PMI_RANK", "PMI_SIZE", true};
static const struct numbers mpirun_rsh = {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", false};
static const struct numbers *const all[] = {&open_mpi, &hydra, &mpirun_rsh};

/* Variables of hydra with -pmi-port, which tell only that there are other ranks. */
static const struct {
    const char *name;
    int64_t min; /* a value from here on means several ranks */
} hints[] = {{"MPI_LOCALNRANKS", 2}, {"PMI_ID", 1}};

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : "(unset)";
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* Returns whether Slurm's numbers are this rank's own. In a Slurm job hydra's proxies are the tasks
 * of srun, and ranks inherit their proxy's numbers. The numbers are the rank's own only if there
 * are as many tasks as ranks. */
static bool slurm_says_so(int64_t size)
{
    return getenv("SLURM_STEP_ID") && boot_number("SLURM_PROCID") >= 0 &&
           boot_number("SLURM_STEP_NUM_TASKS") == size && boot_number("MPI_LOCALNRANKS") < 2;
}

static int refuse(const char *name, const char *by_hand, struct err *err)
{
    return err_set(err, ENOTSUP,
                   "%s=%s: this rank was started by an mpirun that hvd cannot ask for the others, "
                   "and would train alone. Start the ranks with hvdrun, srun --mpi=pmix or Open "
                   "MPI's mpirun, or set %s for all of them (to train alone: HVD_RANK=0 "
                   "HVD_SIZE=1)",
                   name, value_of(name), by_hand);
}

static int take(struct boot *boot, const struct numbers *n, struct err *err)
{
    int64_t rank = boot_number(n->rank), size = boot_number(n->size);
    if (size < 1 || size > BOOT_SIZE_MAX || rank < 0 || rank >= size)
        return err_set(err, EINVAL, "mpirun gives rank %s=%s of %s=%s, which is invalid", n->rank,
                       value_of(n->rank), n->size, value_of(n->size));
    if (size > 1 && !env_get("RENDEZVOUS"))
        return refuse(n->size, "HVD_RENDEZVOUS=HOST:PORT, of rank 0, and HVD_KEY_FILE", err);
    boot->rank = (int)rank;
    boot->size = (int)size;
    int rc = boot_rendezvous_key(boot, err);
    return rc < 0 ? rc : 1;
}

static int mpirun_probe(struct boot *boot, struct err *err)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct numbers *n = all[i];
        int64_t size = boot_number(n->size);
        if (!is_set(n->size) || (n->slurm_too && (size == 1 || slurm_says_so(size))))
            continue;
        return take(boot, n, err);
    }
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        const char *name = hints[i].name;
        if (is_set(name) && boot_number(name) < 0)
            return err_set(err, EINVAL, "mpirun gives %s=%s, which is invalid", name,
                           value_of(name));
        if (boot_number(name) >= hints[i].min)
            return refuse(name, "HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and HVD_KEY_FILE", err);
    }
    return 0;
}

bool mpirun_will_do(void)
{
    return is_set(open_mpi.size) && (env_get("RENDEZVOUS") || boot_number(open_mpi.size) == 1);
}

static int mpirun_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                           struct err *err)
{
    if (boot->size == 1)
        return boot_alone_ops.exchange(boot, card, deadline, err);
    return boot_rendezvous(boot, env_get("RENDEZVOUS"), "HVD_RENDEZVOUS", card, deadline, err);
}

const struct boot_ops boot_mpirun_ops = {
    .name = "mpirun",
    .probe = mpirun_probe,
    .exchange = mpirun_exchange,
};
