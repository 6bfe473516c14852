/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: a fake libmpi.so.40 that only returns its version (script.h, FAKE_MPI), for tests of hvd-
 * probe: versions of Open MPI with known faults, a hang, a crash.
 */
#include "tests/fake/script.h"

#define SCRIPT "FAKE_MPI"

int MPI_Get_library_version(char *text, int *len);

int MPI_Get_library_version(char *text, int *len)
{
    char version[32] = "4.1.6";
    script_text(SCRIPT, "version", version, sizeof(version));
    *len = snprintf(text, 256, "Open MPI v%s, package: fake, ident: %s, repo rev: v%s", version,
                    version, version);
    return script_enter(SCRIPT, __func__, 0);
}
