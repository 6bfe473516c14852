/* SPDX-License-Identifier: Apache-2.0
 *
 * alone: the last source: no launcher started this process, so the job has one rank.
 */
#include "core/base/mac.h"
#include "core/boot/boot.h"

static int alone_probe(struct boot *boot, struct err *err)
{
    (void)err;
    boot->rank = 0;
    boot->size = 1;
    boot->has_key = true;
    return 1;
}

static int alone_exchange(struct boot *boot, const struct buf *card, uint64_t deadline,
                          struct err *err)
{
    (void)deadline;
    int rc = boot_make_cards(boot, false, err);
    if (rc < 0)
        return rc;
    buf_put(&boot->cards[0], card->data, card->len);
    if (boot->cards[0].failed)
        return err_set(err, ENOMEM, "out of memory");
    mac_random(boot->key, sizeof(boot->key));
    return 0;
}

const struct boot_ops boot_alone_ops = {
    .name = "alone",
    .probe = alone_probe,
    .exchange = alone_exchange,
};
