/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_version: see mpi_version.h.
 */
#include "core/backend/mpi_version.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of the first line, the special before the general. Spectrum MPI says that it is Open MPI,
 * of another version than its mpi.h; MVAPICH2 and its kin go by MPICH's ABI. */
static const struct kind {
    const char *words, *name, *family;
    bool majors; /* each major version has its own ABI, and the text has the same number as mpi.h */
} kinds[] = {
    {"Spectrum MPI", "Spectrum MPI", MPI_FAMILY_OPEN, false},
    {"FUJITSU MPI", "Fujitsu MPI", MPI_FAMILY_OPEN, false},
    {"Open MPI", "Open MPI", MPI_FAMILY_OPEN, true},
    {"Intel(R) MPI", "Intel MPI", MPI_FAMILY_MPICH, false},
    {"CRAY MPICH", "Cray MPICH", MPI_FAMILY_MPICH, false},
    {"MVAPICH2", "MVAPICH2", MPI_FAMILY_MPICH, false},
    {"MVAPICH", "MVAPICH", MPI_FAMILY_MPICH, false},
    {"HPE HMPT", "HPE HMPT", MPI_FAMILY_MPICH, false},
    {"MPICH", "MPICH", MPI_FAMILY_MPICH, false},
};

/* Finds the MPI by its text; NULL: unknown. ret_rest: the text after its words. */
static const struct kind *kind_of(const char *text, const char **ret_rest)
{
    size_t line = strcspn(text, "\n");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const char *at = strstr(text, kinds[i].words);
        if (at && at < text + line) {
            *ret_rest = at + strlen(kinds[i].words);
            return &kinds[i];
        }
    }
    return NULL;
}

bool mpi_version_fits(const char *family, unsigned major, const char *text, char *dst, size_t size)
{
    const char *number;
    const struct kind *kind = kind_of(text, &number);
    if (!kind) {
        snprintf(dst, size, "%.*s", (int)strcspn(text, ",\n"), text);
        return strcmp(family, MPI_FAMILY_OTHER) == 0 && text[0];
    }
    number += strcspn(number, "0123456789\n");
    bool numbered = isdigit((unsigned char)number[0]);
    snprintf(dst, size, "%s%s%.*s", kind->name, numbered ? " " : "",
             (int)strspn(number, "0123456789."), number);
    return strcmp(family, kind->family) == 0 &&
           (!kind->majors || (numbered && strtoul(number, NULL, 10) == major));
}
