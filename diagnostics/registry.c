/* SPDX-License-Identifier: Apache-2.0
 *
 * registry: see registry.h.
 */
#include "diagnostics/registry.h"

#include <stdio.h>
#include <string.h>

#include "core/base/nearest.h"

/* One line for each table of checks/, ordered by the first code of each table. */
/* clang-format off */
static const struct check_table *const tables[] = {
    &checks_host,
    &checks_kernel_log,
    &checks_cgroup,
    &checks_limits,
    &checks_sandbox,
    &checks_shm,
    &checks_memory,
    &checks_cpu,
    &checks_hwloc,
    &checks_gpu,
    &checks_gpu_use,
    &checks_cuda,
    &checks_gpu_health,
    &checks_nccl,
    &checks_nccl_settings,
    &checks_nccl_ifname,
    &checks_mpi,
    &checks_mpi_parts,
    &checks_interfaces,
    &checks_network,
    &checks_infiniband,
    &checks_storage,
    &checks_framework,
    &checks_k8s_dns,
    &checks_kubernetes,
    &checks_active,
    &checks_workers,
    &checks_workers_paths,
    &checks_jobs,
    NULL,
};
/* clang-format on */

const struct check *registry_at(size_t i)
{
    for (size_t t = 0; tables[t]; t++) {
        if (i < tables[t]->n)
            return &tables[t]->checks[i];
        i -= tables[t]->n;
    }
    return NULL;
}

size_t registry_count(void)
{
    size_t n = 0;
    for (size_t t = 0; tables[t]; t++)
        n += tables[t]->n;
    return n;
}

int registry_find(const char *name, const struct check **ret, struct err *err)
{
    struct nearest near;
    const struct check *c;
    nearest_init(&near, name);
    for (size_t i = 0; (c = registry_at(i)); i++) {
        if (strcmp(c->id, name) == 0 || strcasecmp(c->code, name) == 0) {
            *ret = c;
            return 0;
        }
        nearest_try(&near, c->id);
    }
    if (nearest_best(&near))
        return err_set(err, ENOENT, "no check \"%s\"; did you mean \"%s\"?", name,
                       nearest_best(&near));
    return err_set(err, ENOENT, "no check \"%s\"; `hvd-doctor list` has them all", name);
}

bool registry_matches(const struct check *c, const char *pattern)
{
    size_t len = strlen(pattern);
    if (len && pattern[len - 1] == '*')
        return strncmp(c->id, pattern, len - 1) == 0;
    return strcmp(c->id, pattern) == 0 || strcasecmp(c->code, pattern) == 0 ||
           strcmp(check_group_name(c->group), pattern) == 0;
}
