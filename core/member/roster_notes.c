/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_notes: see roster_notes.h.
 */
#include "core/member/roster_notes.h"

#include <errno.h>
#include <stdlib.h>

int roster_notes_init(struct roster_notes *notes, int room)
{
    *notes = (struct roster_notes){.cap = room, .list = calloc((size_t)room, sizeof(*notes->list))};
    return notes->list ? 0 : -ENOMEM;
}

void roster_notes_fini(struct roster_notes *notes)
{
    free(notes->list);
    *notes = (struct roster_notes){0};
}

bool roster_notes_add(struct roster_notes *notes, const struct note *note)
{
    if (notes->n == notes->cap) {
        int cap = notes->cap * 2;
        struct note *grown = realloc(notes->list, (size_t)cap * sizeof(*grown));
        if (!grown)
            return false;
        notes->list = grown;
        notes->cap = cap;
    }
    notes->list[notes->n++] = *note;
    return true;
}
