/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of MPI_Get_library_version, and whether that library is the MPI for which the plugin was
 * compiled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/mpi_library.h"

#define OPEN  MPI_FAMILY_OPEN
#define MPICH MPI_FAMILY_MPICH
#define OTHER MPI_FAMILY_OTHER

/* Texts of real libraries. major: the major version of the Open MPI plugin that fits. */
static const struct {
    const char *text, *family;
    unsigned major;
} table[] = {
    {"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", OPEN,
     4},
    {"Open MPI v3.1.3, package: Open MPI root@b Distribution, ident: 3.1.3", OPEN, 3},
    {"Open MPI v5.0.0rc12, package: Open MPI root@MPICH Distribution, ident: 5.0.0rc12, repo rev: "
     "v5.0.0rc12, Unreleased developer copy\n",
     OPEN, 5},
    {"Open MPI v3.1.0, package: IBM Spectrum MPI, ident: 10.03.01.00rtm0, repo rev: "
     "IBM_SPECTRUM_MPI_10.03.01.00_2019.04.02, Apr 02, 2019\n",
     OPEN, 10},
    {"FUJITSU MPI Library 4.0.0 (4.0.1fj4.0.0)", OPEN, 4},
    {"MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7 12:34:45 CDT 2022\nMPICH ABI: "
     "          14:2:2\n",
     MPICH, 0},
    {"MPICH Version:\t3.4.2\nMPICH Release date:\tWed May 26 15:51:40 CDT 2021\nMPICH "
     "configure:\t--prefix=/opt/Open MPI\n",
     MPICH, 0},
    {"Intel(R) MPI Library 2018 for Linux* OS\n", MPICH, 0},
    {"Intel(R) MPI Library 2019 Update 6 for Linux* OS\n", MPICH, 0},
    {"Intel(R) MPI Library 2021.8 for Linux* OS\n", MPICH, 0},
    {"MPI VERSION    : CRAY MPICH version 7.7.10 (ANL base 3.2)\nMPI BUILD INFO : Built Fri", MPICH,
     0},
    {"MPI VERSION    : CRAY MPICH version 8.1.28.2 (ANL base 3.4a2)\n", MPICH, 0},
    {"MVAPICH2 Version      :\t2.3.5\nMVAPICH2 Release date :\tMon November 30 2020\n", MPICH, 0},
    {"MVAPICH Version      :\t3.0\nMVAPICH Release date :\t02/26/2024\n", MPICH, 0},
    {"HPE HMPT 2.23  08/26/20 02:59:48-root", MPICH, 0},
    {"HPE MPT 2.23  08/26/20 02:54:49-root", OTHER, 0},
    {"MPIwrapper Version:\t2.2.2\nMPICH Version: 4.0\n", OTHER, 0},
};

/* A plugin fits only libraries of its own family. */
static void test_families(void **state)
{
    static const char *const families[] = {OPEN, MPICH, OTHER};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
            bool fits = mpi_library_fits(families[f], table[i].major, table[i].text);
            assert_int_equal(fits, strcmp(families[f], table[i].family) == 0);
        }
    }
}

/* For Open MPI the major version that is wanted and the one in the library's version text must be
 * equal. For other MPI families major versions are not compared. */
static void test_majors(void **state)
{
    assert_false(mpi_library_fits(OPEN, 4, "Open MPI v5.0.7, package: x"));
    assert_false(mpi_library_fits(OPEN, 4, "Open MPI v3.1.3, package: x"));
    assert_false(mpi_library_fits(OPEN, 10, "Open MPI v4.1.4, package: x"));
    assert_true(mpi_library_fits(OPEN, 4, "Open MPI v4.0.0, package: x"));
    assert_true(mpi_library_fits(MPICH, 3, "MPICH Version:      4.0.2"));
}

static void test_broken(void **state)
{
    assert_false(mpi_library_fits(OPEN, 4, "Open MPI"));
    assert_false(mpi_library_fits(OPEN, 4, "Open MPI v, 4.1.4"));
    assert_false(mpi_library_fits(OPEN, 4, ""));
    assert_false(mpi_library_fits(OTHER, 0, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_majors),
                                       cmocka_unit_test(test_broken)};
    return cmocka_run_group_tests_name("backend/mpi_library", tests, NULL, NULL);
}
