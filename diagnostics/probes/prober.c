/* SPDX-License-Identifier: Apache-2.0
 *
 * prober: the probes that the program hvd-probe runs, because they open the image's own libraries.
 * See probe.h; diagnostics/prober has the program.
 */
#include "diagnostics/probe.h"

static const struct probe rows[] = {
    {.name = "nccl", .level = 1},      {.name = "cuda", .level = 1},
    {.name = "cudart", .level = 1},    {.name = "nvml", .level = 1},
    {.name = "mpi", .level = 1},       {.name = "pmix", .level = 1},
    {.name = "hwloc", .level = 1},     {.name = "ucx", .level = 1},
    {.name = "libfabric", .level = 1}, {.name = "ibverbs", .level = 1},
    {.name = "numa", .level = 1},      {.name = "nccl-plugin", .level = 1},
    {.name = "hvd", .level = 1},       {.name = "framework", .level = 1},
    {.name = "elf", .level = 1},
};

const struct probe_table probes_prober = {rows, sizeof(rows) / sizeof(*rows)};
