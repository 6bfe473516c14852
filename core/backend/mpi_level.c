/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_level: see mpi_level.h.
 */
#include "core/backend/mpi_level.h"

#include <strings.h>

#include "core/base/env.h"

const char *mpi_level_name(enum mpi_level level)
{
    static const char *const words[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    return words[level];
}

int mpi_level_wanted(enum mpi_level *ret, bool *ret_forced, struct err *err)
{
    const char *value = env_get("MPI_THREADS");
    *ret = MPI_LEVEL_MULTIPLE;
    *ret_forced = value != NULL;
    if (!value || strcasecmp(value, "multiple") == 0)
        return 0;
    if (strcasecmp(value, "funneled") != 0)
        return err_set(err, EINVAL, "HVD_MPI_THREADS=%s: want multiple or funneled", value);
    *ret = MPI_LEVEL_FUNNELED;
    return 0;
}

int mpi_level_check(enum mpi_level there, enum mpi_level wanted, bool forced, struct err *err)
{
    if (there == MPI_LEVEL_SINGLE || (forced && there < wanted))
        return err_set(err, ENOTSUP, "MPI offers MPI_THREAD_%s, wanted is MPI_THREAD_%s",
                       mpi_level_name(there), mpi_level_name(forced ? wanted : MPI_LEVEL_FUNNELED));
    return 0;
}
