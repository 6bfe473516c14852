/* SPDX-License-Identifier: Apache-2.0
 *
 * boot_rendezvous: see boot_rendezvous.h.
 */
#include "core/boot/boot_rendezvous.h"

#include <string.h>

#include "core/base/env.h"
#include "core/boot/keyfile.h"
#include "core/boot/rendezvous.h"

int boot_rendezvous_key(struct boot *boot, struct err *err)
{
    int rc = boot->size > 1 ? keyfile_from_env(boot->key, err) : 0;
    if (rc >= 0)
        boot->has_key = rc == 0;
    return rc < 0 ? rc : 0;
}

int boot_rendezvous(struct boot *boot, const char *where, const char *source,
                    const struct buf *card, uint64_t deadline, struct err *err)
{
    struct rendezvous rv = {.rank = boot->rank, .size = boot->size};
    bool insecure = false;
    int rc = rendezvous_parse(where, source, &rv, err);
    if (rc == 0)
        rc = env_bool("INSECURE", false, &insecure, err);
    if (rc == 0)
        rc = boot_make_cards(boot, false, err);
    if (rc < 0)
        return rc;
    rv.anywhere = boot->has_key || insecure;
    if (boot->has_key)
        memcpy(rv.key, boot->key, sizeof(rv.key));
    struct rendezvous_result result = {.cards = boot->cards};
    rc = rendezvous_exchange(&rv, card, deadline, &result, err);
    boot->refused += result.refused;
    if (rc == 0)
        keyfile_derive(rv.key, result.session, boot->key);
    mac_wipe(rv.key, sizeof(rv.key));
    return rc;
}
