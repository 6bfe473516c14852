/* SPDX-License-Identifier: Apache-2.0
 *
 * members: see members.h.
 */
#include "core/coll/members.h"

#include <errno.h>
#include <stdlib.h>

int members_init(struct members *m, const struct mesh *mesh)
{
    int *ranks = calloc((size_t)mesh->size, sizeof(*ranks));
    if (!ranks)
        return -ENOMEM;
    *m = (struct members){.ranks = ranks};
    for (int host = 0; host < mesh->hosts; host++) {
        for (int local = 0; local < mesh->local_size_of[host]; local++) {
            int rank = mesh_rank_at(mesh, host, local);
            if (rank == mesh->rank)
                m->place = m->n;
            m->ranks[m->n++] = rank;
        }
    }
    return 0;
}

void members_fini(struct members *m)
{
    free(m->ranks);
    m->ranks = NULL;
}
