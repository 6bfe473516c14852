/* SPDX-License-Identifier: Apache-2.0
 *
 * What MPI_Get_library_version says, and whether it is the MPI that the plugin was compiled for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/mpi_load.h"

static const struct {
    const char *family;
    unsigned major;
    const char *text;
    bool fits;
    const char *version;
} table[] = {
    {"Open MPI", 4, "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
     true, "Open MPI 4.1.4"},
    {"Open MPI", 4, "Open MPI v4.1.6, package: x", true, "Open MPI 4.1.6"},
    {"Open MPI", 4, "Open MPI v5.0.7, package: x", false, "Open MPI 5.0.7"},
    {"Open MPI", 4, "Open MPI v3.1.3, package: x", false, "Open MPI 3.1.3"},
    {"Open MPI", 4, "Open MPI", false, "Open MPI "},
    {"Open MPI", 4, "MPICH Version:      4.0.2", false, "MPICH Version:      4.0.2"},
    {"Open MPI", 4, "Intel(R) MPI Library 2021.9 for Linux* OS\n", false,
     "Intel(R) MPI Library 2021.9 for Linux* OS"},
    {"Open MPI", 4, "", false, ""},
    {"MPICH", 4, "MPICH Version:      4.0.2", true, "MPICH 4.0.2"},
    {"MPICH", 3, "MPICH Version:      4.0.2", false, "MPICH 4.0.2"},
};

static void test_versions(void **state)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char got[64] = "x";
        bool fits =
            mpi_version_fits(table[i].family, table[i].major, table[i].text, got, sizeof(got));
        assert_int_equal(fits, table[i].fits);
        assert_string_equal(got, table[i].version);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions)};
    return cmocka_run_group_tests_name("backend/mpi_version", tests, NULL, NULL);
}
