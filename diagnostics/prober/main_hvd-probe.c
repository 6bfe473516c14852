/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-probe: opens the libraries of the image that it runs in and prints their versions. hvd-doctor
 * starts it; a user can, too. It needs only libc, so that it runs in any image with glibc. It
 * changes nothing and writes only to standard output.
 *
 *     hvd-probe NAME [LEVEL] [FILE]
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/prober/libs.h"
#include "diagnostics/prober/probes.h"

static const struct {
    const char *name;
    prober_f *run; /* NULL: a row of libs.c */
    const char *what;
} rows[] = {
    {"nccl", NULL, "NCCL: every copy, version, the CUDA it was built for"},
    {"cuda", probe_cuda, "CUDA driver: version, cuInit, devices"},
    {"cudart", NULL, "CUDA runtime: every copy and version"},
    {"nvml", probe_nvml, "NVIDIA management library: driver, GPUs, their health"},
    {"mpi", NULL, "MPI: every copy, vendor, version"},
    {"pmix", NULL, "PMIx"},
    {"hwloc", NULL, "hwloc"},
    {"ucx", NULL, "UCX"},
    {"libfabric", NULL, "libfabric"},
    {"ibverbs", NULL, "libibverbs and the devices that it sees"},
    {"numa", NULL, "libnuma"},
    {"nccl-plugin", probe_plugin, "the network plugin that NCCL would load"},
    {"hvd", probe_hvd, "libhvd"},
    {"framework", probe_framework, "Python, torch, horovod"},
    {"elf", probe_elf, "what extensions need and what it resolves to; FILE: of one file"},
};

static int usage(FILE *to)
{
    fprintf(to, "usage: hvd-probe NAME [LEVEL] [FILE]\n"
                "Prints facts about the libraries of this image, as lines \"key value\".\n\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        fprintf(to, "  %-12s %s\n", rows[i].name, rows[i].what);
    return to == stdout ? 0 : EINVAL;
}

/* The FILE argument; a number is LEVEL instead. */
static const char *file_of(int argc, char **argv)
{
    int i = 2;
    if (argc > i && argv[i][strspn(argv[i], "0123456789")] == '\0')
        i++;
    return argc > i ? argv[i] : NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return usage(stdout);
    const char *file = file_of(argc, argv);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(rows[i].name, argv[1]) != 0)
            continue;
        if (rows[i].run)
            return -rows[i].run(file);
        if (file)
            library_print_file(libs_find(argv[1]), file);
        else
            library_print(libs_find(argv[1]));
        return 0;
    }
    fprintf(stderr, "hvd-probe: no probe \"%s\"\n", argv[1]);
    return EINVAL;
}
