/* SPDX-License-Identifier: Apache-2.0
 *
 * env: ranks started by hand, or by any launcher that can set variables: HVD_RANK, HVD_SIZE,
 * HVD_RENDEZVOUS (host:port where rank 0 listens), HVD_KEY_FILE. The ranks exchange cards there.
 */
#include "core/base/env.h"
#include "core/boot/boot.h"
#include "core/boot/boot_rendezvous.h"

static int env_probe(struct boot *boot, struct err *err)
{
    bool has_rank = env_get("RANK"), has_size = env_get("SIZE");
    if (!has_rank && !has_size)
        return 0;
    if (!has_rank || !has_size)
        return err_set(err, EINVAL, "HVD_%s is set but HVD_%s is not: want both, or none",
                       has_rank ? "RANK" : "SIZE", has_rank ? "SIZE" : "RANK");
    int64_t rank = 0, size = 1;
    int rc = env_int("SIZE", 1, 1, BOOT_SIZE_MAX, &size, err);
    if (rc == 0)
        rc = env_int("RANK", 0, 0, size - 1, &rank, err);
    if (rc < 0)
        return rc;
    if (size > 1 && !env_get("RENDEZVOUS"))
        return err_set(err, EINVAL,
                       "HVD_SIZE=%d but HVD_RENDEZVOUS is not set: want host:port of rank 0",
                       (int)size);
    boot->rank = (int)rank;
    boot->size = (int)size;
    rc = boot_rendezvous_key(boot, err);
    return rc < 0 ? rc : 1;
}

static int env_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                        struct err *err)
{
    const char *where = env_get("RENDEZVOUS");
    if (boot->size == 1)
        return boot_alone_ops.exchange(boot, card, deadline, err);
    return boot_rendezvous(boot, where, "HVD_RENDEZVOUS", card, deadline, err);
}

const struct boot_ops boot_env_ops = {
    .name = "env",
    .probe = env_probe,
    .exchange = env_exchange,
};
