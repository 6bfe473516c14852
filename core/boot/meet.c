/* SPDX-License-Identifier: Apache-2.0
 *
 * meet: see meet.h.
 */
#include "core/boot/meet.h"

#include <string.h>

#include "core/base/env.h"
#include "core/boot/keyfile.h"
#include "core/boot/rendezvous.h"

int boot_meet_key(struct boot *boot, struct err *err)
{
    int rc = boot->size > 1 ? keyfile_from_env(boot->key, err) : 0;
    if (rc >= 0)
        boot->has_key = rc == 0;
    return rc < 0 ? rc : 0;
}

int boot_meet(struct boot *boot, const char *where, const char *source, const struct buf *card,
              uint64_t deadline, struct err *err)
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
    struct meeting meeting = {.cards = boot->cards};
    rc = rendezvous_meet(&rv, card, deadline, &meeting, err);
    boot->refused += meeting.refused;
    if (rc == 0)
        keyfile_derive(rv.key, meeting.session, boot->key);
    mac_wipe(rv.key, sizeof(rv.key));
    return rc;
}
